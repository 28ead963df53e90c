#include "trireme/dataset/byte_level/pattern.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
constexpr std::string_view kDigits = "0123456789";

bool is_one_of(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_punctuation(char c) {
  return c > ' ' && c < 0x7F && !is_letter(c) && !is_one_of(kDigits, c);
}

class Translation {
 public:
  Translation(std::string_view pattern, std::string_view source)
      : pattern_(pattern), source_(source) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (!ignores_case_.empty()) ignores_case_.pop_back();
        copy(1);
      } else if (c == '{') {
        braces();
      } else {
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    throw ConfigError(concat(source_, ": the pattern \"", shown(pattern_, 200), "\" has ",
                             construct, " at byte ", at_,
                             ", which this reader does not support: give a tokenizer without it"));
  }

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += count;
  }

  // The text from here up to `end`, which is left behind.
  std::string_view take_until(char end) {
    const size_t found = pattern_.find(end, at_);
    if (found == std::string_view::npos) refuse(concat("no ", end));
    const std::string_view text = pattern_.substr(at_, found - at_);
    at_ = found + 1;
    return text;
  }

  // PCRE2's \s also takes U+180E, and its \p{Han} means script extensions.
  void escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (c == 'p' || c == 'P') return property();
    if (c == 'u' || c == 'x') return code_point();
    if (is_punctuation(c) || is_one_of("rnt", c)) return copy(2);
    switch (c) {
      case 's': result_ += "\\p{White_Space}"; break;
      case 'S': result_ += "\\P{White_Space}"; break;
      case 'd': result_ += "\\p{Nd}"; break;
      case 'D': result_ += "\\P{Nd}"; break;
      default: refuse("an escape of this kind");
    }
    at_ += 2;
  }

  void property() {
    // Without regard to case, PCRE2 takes every letter for \p{Lu}.
    if (std::ranges::find(ignores_case_, true) != ignores_case_.end())
      refuse("a property in a group without case");
    const char kind = pattern_[at_ + 1];
    if (pattern_.substr(at_ + 2, 1) != "{") refuse("a property without braces");
    at_ += 3;
    const std::string_view name = take_until('}');
    if (name.empty() || !std::ranges::all_of(name, [](char c) { return is_letter(c) || c == '_'; }))
      refuse(concat("the property \"", shown(name), "\""));
    // A general category has one or two letters. Other names are those of scripts, but for a few.
    constexpr std::array<std::string_view, 4> kBinary = {"Alphabetic", "Lowercase", "Uppercase",
                                                         "White_Space"};
    const bool is_script = name.size() > 2 && std::ranges::find(kBinary, name) == kBinary.end();
    result_ += concat("\\", kind, "{", is_script ? "sc:" : "", name, "}");
  }

  // \uHHHH and \x{H...}.
  void code_point() {
    const bool is_short = pattern_[at_ + 1] == 'u';
    if (!is_short && !pattern_.substr(at_).starts_with("\\x{")) refuse("\\x without braces");
    at_ += is_short ? 2 : 3;
    const std::string_view digits = is_short ? pattern_.substr(at_, 4) : take_until('}');
    if (is_short) at_ += digits.size();
    if (digits.empty() || digits.size() > 6 || (is_short && digits.size() != 4) ||
        digits.find_first_not_of(kHexDigits) != std::string_view::npos)
      refuse("a code point that is not hexadecimal");
    result_ += concat("\\x{", digits, "}");
  }

  void character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) refuse("an empty class");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[') refuse("a class in a class");
      if (next_is("&&")) refuse("an intersection of classes");
      if (pattern_[at_] == '\\') {
        escape();
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void open_group() {
    if (next_is("(*")) refuse("a verb");
    if (!next_is("(?")) {
      ignores_case_.push_back(false);
      return copy(1);
    }
    constexpr std::array<std::string_view, 7> kKinds = {"(?i:", "(?:",  "(?=", "(?!",
                                                        "(?<=", "(?<!", "(?>"};
    const auto* const kind =
        std::ranges::find_if(kKinds, [&](std::string_view k) { return next_is(k); });
    if (kind == kKinds.end()) refuse("a group of this kind");
    ignores_case_.push_back(*kind == kKinds.front());
    copy(kind->size());
  }

  // {n}, {n,} and {n,m}. With a + or ? behind them the two libraries differ, and for {,m}.
  void braces() {
    if (next_is("{,")) refuse("a quantifier without a minimum");
    const size_t end =
        std::min(pattern_.find_first_not_of("0123456789,", at_ + 1), pattern_.size());
    const bool is_quantifier = end > at_ + 1 && pattern_.substr(end, 1) == "}";
    if (!is_quantifier) return copy(1);
    copy(end + 1 - at_);
    if (next_is("+") || next_is("?")) refuse("a quantifier after a quantifier");
  }

  std::string_view pattern_;
  std::string_view source_;
  size_t at_ = 0;
  std::string result_;
  std::vector<bool> ignores_case_;  // of the open groups, outermost first
};

}  // namespace

std::string as_pcre2(std::string_view pattern, std::string_view source) {
  return Translation(pattern, source).run();
}

}  // namespace trireme::dataset::inline internal
