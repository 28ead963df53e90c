#include "trireme/dataset/utf8.h"

#include "trireme/base/utf8.h"

namespace trireme::dataset::inline internal {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

size_t plain_prefix(std::string_view text) {
  using namespace std::string_view_literals;
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = utf8_character_bytes(text.substr(end));
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
  // A character has at most four bytes. Text without a border in them is not UTF-8: cut it
  // anywhere.
  for (size_t back = 0; back < 4 && back < limit; ++back)
    if (!is_continuation(text[limit - back])) return limit - back;
  return limit;
}

}  // namespace trireme::dataset::inline internal
