#include "trireme/base/locale/text.h"

#include <algorithm>
#include <clocale>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <locale>

namespace trireme {

TextWriter::TextWriter() { imbue(std::locale::classic()); }

TextReader::TextReader(const std::string& text) : std::istringstream(text) {
  imbue(std::locale::classic());
}

std::string format(const char* pattern, ...) {
  const ClassicThread classic;
  std::va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, pattern, arguments);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The length that the first byte announces; 0 when no character begins with it.
size_t announced_bytes(unsigned first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// Whether the bytes after the first, as far as they are there, can belong to a character.
bool has_possible_rest(std::string_view text) {
  if (!std::ranges::all_of(text.substr(1), is_continuation)) return false;
  if (text.size() == 1) return true;
  const unsigned first = static_cast<unsigned char>(text[0]);
  const unsigned second = static_cast<unsigned char>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond_unicode = first == 0xF4 && second >= 0x90;
  return !overlong && !surrogate && !beyond_unicode;
}

}  // namespace

size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const size_t length = announced_bytes(static_cast<unsigned char>(text[0]));
  return length > 0 && text.size() >= length && has_possible_rest(text.substr(0, length)) ? length
                                                                                          : 0;
}

bool is_utf8_beginning(std::string_view text) {
  return !text.empty() && text.size() < announced_bytes(static_cast<unsigned char>(text[0])) &&
         has_possible_rest(text);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    // Most text is ASCII for long stretches.
    for (uint64_t word = 0; text.size() >= sizeof(word); text.remove_prefix(sizeof(word))) {
      std::memcpy(&word, text.data(), sizeof(word));
      if ((word & 0x8080808080808080U) != 0) break;
    }
    if (text.empty()) break;
    const size_t length = utf8_character_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

size_t utf8_prefix_bytes(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text.size();
  for (size_t back = 0; back < 4 && back < max_bytes; ++back) {
    if (!is_continuation(text[max_bytes - back])) return max_bytes - back;
  }
  return max_bytes;  // not UTF-8
}

namespace {

// Never freed: a thread may still use it when the program ends.
locale_t classic() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace

ClassicThread::ClassicThread() : previous_(uselocale(classic())) {}
ClassicThread::~ClassicThread() { uselocale(previous_); }

ClassicProcess::ClassicProcess()
    : c_previous_(std::setlocale(LC_ALL, nullptr)),
      previous_(std::locale::global(std::locale::classic())) {}

ClassicProcess::~ClassicProcess() {
  std::locale::global(previous_);
  std::setlocale(LC_ALL, c_previous_.c_str());
}

}  // namespace trireme
