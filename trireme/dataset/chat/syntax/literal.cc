#include "trireme/dataset/chat/syntax/literal.h"

#include <charconv>
#include <limits>

#include "trireme/dataset/chat/values/characters.h"

namespace trireme::dataset::chat {

namespace {

bool is_digit_of(char c, int base) {
  const char lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower >= '0' && lower <= '9') return lower - '0' < base;
  return lower >= 'a' && lower - 'a' + 10 < base;
}

// The end of digits from `begin`, with single underscores between them.
size_t digits_end(std::string_view text, size_t begin, int base) {
  const auto is = [&](size_t i) { return i < text.size() && is_digit_of(text[i], base); };
  size_t end = begin;
  while (is(end) || (end > begin && end < text.size() && text[end] == '_' && is(end + 1))) ++end;
  return end;
}

// The end of the fraction and the exponent behind the digits that end at `whole`; `whole` itself
// when there is neither.
size_t fraction_end(std::string_view text, size_t whole) {
  size_t end = whole;
  if (end < text.size() && text[end] == '.') {
    const size_t digits = digits_end(text, end + 1, 10);
    if (digits == end + 1) return whole;
    end = digits;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t digits = end + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
    const size_t exponent_end = digits_end(text, digits, 10);
    if (exponent_end > digits) end = exponent_end;
  }
  return end;
}

std::string without_underscores_in(std::string_view text) {
  std::string plain(text);
  std::erase(plain, '_');
  return plain;
}

int base_of(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 10;
  const char letter = static_cast<char>(text[1] | 0x20);
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  const size_t first = text[2] == '_' ? 3 : 2;
  return first < text.size() && is_digit_of(text[first], base) ? base : 10;
}

// The escapes of a literal, one by one.
class Unescaper {
 public:
  Unescaper(Run& run, std::string_view text) : run_(run), text_(text) {}

  std::string take() {
    while (position_ < text_.size()) {
      const char c = text_[position_++];
      if (c != '\\' || position_ == text_.size()) {
        result_.push_back(c);
      } else {
        read_escape();
      }
    }
    return std::move(result_);
  }

 private:
  void read_escape() {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[position_];
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      result_.push_back(kMeanings[found]);
      ++position_;
    } else if (c == '\n') {
      ++position_;
    } else if (c >= '0' && c <= '7') {
      read_octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++position_;
      read_hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      run_.fail("a text has \\N, which is not supported; write the character itself");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      read_escaped_character();
    } else {
      result_.push_back('\\');  // and then the character as usual
    }
  }

  void read_octal() {
    char32_t value = 0;
    for (int i = 0; i < 3 && position_ < text_.size(); ++i) {
      const char c = text_[position_];
      if (c < '0' || c > '7') break;
      value = value * 8 + static_cast<char32_t>(c - '0');
      ++position_;
    }
    append_character(result_, value);
  }

  void read_hex(size_t digits) {
    uint32_t value = 0;
    const std::string_view hex = text_.substr(position_, digits);
    const auto [rest, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() < digits || error != std::errc() || rest != hex.data() + hex.size()) {
      run_.fail("a text has an escape with fewer than ", digits, " hexadecimal digits");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      run_.fail("a text has the escape ", hex,
                ", which is no character; write the character itself");
    }
    append_character(result_, value);
    position_ += digits;
  }

  // Jinja first writes characters beyond ASCII as escapes, so a backslash before one escapes that
  // escape's backslash, and the rest of it stays as text.
  void read_escaped_character() {
    const char32_t c = next_character(text_, position_);
    const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    result_ += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
    append_hex(result_, c, digits);
  }

  Run& run_;
  std::string_view text_;
  std::string result_;
  size_t position_ = 0;
};

}  // namespace

NumberLiteral read_number_literal(Run& run, std::string_view text, bool may_be_fraction) {
  const size_t whole = digits_end(text, 0, 10);
  const size_t end = may_be_fraction ? fraction_end(text, whole) : whole;
  NumberLiteral literal{.is_integer = end == whole, .num_bytes = end};
  if (!literal.is_integer) {
    const std::string digits = without_underscores_in(text.substr(0, end));
    const auto error =
        std::from_chars(digits.data(), digits.data() + digits.size(), literal.number).ec;
    if (error != std::errc()) run.fail("the number ", digits, " does not fit in 64 bits");
    return literal;
  }
  const int base = base_of(text);
  // In base 10, 0 cannot begin a longer integer: 012 is 0 and then 12.
  size_t begin = base == 10 ? 0 : 2;
  if (base != 10) {
    if (text[begin] == '_') ++begin;
    literal.num_bytes = digits_end(text, begin, base);
  } else if (text[0] == '0') {
    literal.num_bytes = digits_end(text, 0, 1);
  }
  const std::string digits = without_underscores_in(text.substr(begin, literal.num_bytes - begin));
  const auto error =
      std::from_chars(digits.data(), digits.data() + digits.size(), literal.integer, base).ec;
  if (error != std::errc()) run.fail("the number ", digits, " does not fit in 64 bits");
  return literal;
}

std::string unescaped(Run& run, std::string_view literal) { return Unescaper(run, literal).take(); }

}  // namespace trireme::dataset::chat
