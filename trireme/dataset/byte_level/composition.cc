#include "trireme/dataset/byte_level/composition.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <utf8proc.h>

#include "trireme/base/error.h"

namespace trireme::dataset::inline internal {
namespace {

// Characters below U+0300 are in normal form and combine with none before them. The first byte of
// all others is at least that of U+0300.
constexpr unsigned char kFirstByte = 0xCC;

bool may_change(char c) { return static_cast<unsigned char>(c) >= kFirstByte; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
    TRIREME_ASSERT(length > 0, "text that is not UTF-8");
    at += static_cast<size_t>(length);
    std::array<utf8proc_int32_t, 32> parts;
    const auto count = utf8proc_decompose_char(
        character, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE), nullptr);
    TRIREME_ASSERT(count > 0 && count <= std::ssize(parts), "a character of ", count, " parts");
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  return characters;
}

// Marks follow their letter in the order of their classes. utf8proc's sort takes quadratic time.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_letter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto begin = std::find_if_not(at, characters.end(), is_letter);
    at = std::find_if(begin, characters.end(), is_letter);
    std::stable_sort(begin, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
  }
}

void append_composed(std::string_view text, std::string& result) {
  std::vector<utf8proc_int32_t> characters = decomposed(text);
  sort_marks(characters);
  const auto count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TRIREME_ASSERT(count >= 0 && count <= std::ssize(characters), "utf8proc's error ", count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes;
    const auto length = utf8proc_encode_char(characters[static_cast<size_t>(i)], bytes.data());
    result.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
}

}  // namespace

std::string_view composed(std::string_view text, std::string& memory) {
  auto run = std::find_if(text.begin(), text.end(), may_change);
  if (run == text.end()) return text;
  memory.clear();
  auto done = text.begin();
  while (run != text.end()) {
    const auto end =
        std::find_if(run, text.end(), [](char c) { return !may_change(c) && !is_continuation(c); });
    // The character before them may take their first marks.
    auto begin = run;
    while (begin != done && is_continuation(*--begin)) {
    }
    memory.append(done, begin);
    append_composed(std::string_view(begin, end), memory);
    done = end;
    run = std::find_if(end, text.end(), may_change);
  }
  memory.append(done, text.end());
  return memory;
}

}  // namespace trireme::dataset::inline internal
