#include "trireme/dataset/utf8.h"

namespace trireme::dataset {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the well-formed character at the start of `text`, 0 when there is none.
size_t character_length(std::string_view text) {
  const unsigned first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  size_t length = 0;
  if (first >= 0xC2 && first < 0xE0) length = 2;
  if (first >= 0xE0 && first < 0xF0) length = 3;
  if (first >= 0xF0 && first < 0xF5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(text[i])) return 0;
  const unsigned second = static_cast<unsigned char>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond_unicode = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond_unicode ? 0 : length;
}

}  // namespace

size_t plain_prefix(std::string_view text) {
  using namespace std::string_view_literals;
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = character_length(text.substr(end));
    const std::string_view character = text.substr(end, length);
    if (length == 0 || character == "\0"sv || character == "\u2581"sv || character == "\u2585"sv)
      break;
    end += length;
  }
  return end;
}

size_t cut_length(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const size_t line = limit == 0 ? std::string_view::npos : text.rfind('\n', limit - 1);
  if (line != std::string_view::npos) return line + 1;
  // A character has at most four bytes; bytes without a border are no UTF-8, cut anywhere.
  for (size_t back = 0; back < 4 && back < limit; ++back)
    if (!is_continuation(text[limit - back])) return limit - back;
  return limit;
}

}  // namespace trireme::dataset
