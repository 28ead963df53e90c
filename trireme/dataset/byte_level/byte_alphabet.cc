#include "trireme/dataset/byte_level/byte_alphabet.h"

#include <array>

namespace trireme::dataset::inline internal {
namespace {

constexpr unsigned kFirstOther = 0x100;
constexpr unsigned kNumOthers = 68;

constexpr bool spells_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The code point of each byte.
constexpr std::array<unsigned, 256> kCharacters = [] {
  std::array<unsigned, 256> characters{};
  unsigned other = kFirstOther;
  for (unsigned byte = 0; byte < 256; ++byte) {
    characters[byte] = spells_itself(byte) ? byte : other++;
  }
  return characters;
}();

// The byte of each code point below 0x144; -1 for those that spell none.
constexpr std::array<int, kFirstOther + kNumOthers> kBytes = [] {
  std::array<int, kFirstOther + kNumOthers> bytes{};
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int>(byte);
  return bytes;
}();

}  // namespace

std::string spelled_byte(uint8_t byte) {
  const unsigned character = kCharacters[byte];
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

std::optional<std::string> spelled_bytes(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      // All the alphabet's other characters have two bytes in UTF-8.
      if ((character & 0xE0) != 0xC0 || ++i == text.size()) return std::nullopt;
      character = ((character & 0x1F) << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
    }
    if (character >= kBytes.size() || kBytes[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[character]));
  }
  return bytes;
}

}  // namespace trireme::dataset::inline internal
