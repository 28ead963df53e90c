#include "trireme/dataset/chat/values/characters.h"

#include <array>

#include <utf8proc.h>

namespace trireme::dataset::chat {

namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

char32_t next_character(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const char32_t first = byte(offset++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  char32_t character = first & (0x3F >> more);
  for (size_t i = 0; i < more; ++i) character = (character << 6) | (byte(offset++) & 0x3F);
  return character;
}

char32_t previous_character(std::string_view text, size_t& offset) {
  do {
    --offset;
  } while (offset > 0 && continues_character(text[offset]));
  size_t begin = offset;
  return next_character(text, begin);
}

void append_character(std::string& text, char32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
}

void append_hex(std::string& text, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    text.push_back("0123456789abcdef"[(c >> shift) & 0xF]);
  }
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += continues_character(byte) ? 0 : 1;
  return count;
}

size_t character_offset(std::string_view text, size_t index) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!continues_character(text[i]) && index-- == 0) return i;
  }
  return text.size();
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }

std::string_view strip(std::string_view text, std::optional<std::string_view> characters,
                       StripEnds ends) {
  const auto goes = [&](char32_t c, std::string_view bytes) {
    return characters ? characters->find(bytes) != std::string_view::npos : is_space(c);
  };
  size_t begin = 0, end = text.size();
  while (ends.left && begin < end) {
    size_t next = begin;
    const char32_t c = next_character(text, next);
    if (!goes(c, text.substr(begin, next - begin))) break;
    begin = next;
  }
  while (ends.right && end > begin) {
    size_t before = end;
    const char32_t c = previous_character(text, before);
    if (!goes(c, text.substr(before, end - before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> split_lines(Run& run, std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t end = offset;
    const char32_t c = next_character(text, offset);
    if (!is_line_end(c)) continue;
    if (c == '\r' && offset < text.size() && text[offset] == '\n') ++offset;
    run.charge(1);
    lines.push_back(text.substr(begin, (keep_ends ? offset : end) - begin));
    begin = offset;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace trireme::dataset::chat
