#include "trireme/dataset/byte_level/regex.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::dataset {
namespace {

constexpr size_t kMaxPatternBytes = size_t{16} << 10;
constexpr size_t kMaxStackBytes = size_t{8} << 20;  // grows from 32 KiB on
constexpr uint32_t kMaxHeapKib = uint32_t{64} << 10;
// A greedy run that is given back character by character takes a step for each.
constexpr uint64_t kMaxSteps = 1'000'000;
constexpr uint64_t kMaxStepsPerByte = 16;

constexpr std::chrono::nanoseconds kTimePerText = std::chrono::milliseconds(500);
constexpr std::chrono::nanoseconds kTimePerByte = std::chrono::microseconds(2);
constexpr uint32_t kFindsBetweenLooks = 64;  // at the clock, which takes as long as a match
constexpr size_t kPlacesBetweenLooks = 64;
constexpr std::chrono::nanoseconds kShortSearch = std::chrono::milliseconds(2);

std::chrono::nanoseconds thread_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// The first place from `at` on that is between two characters.
size_t next_character(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

std::string reason_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <typename T>
T* allocated(T* pointer) {
  TRIREME_CHECK(pointer != nullptr, "out of memory for a regular expression");
  return pointer;
}

}  // namespace

void FreePcre2::operator()(pcre2_code* code) const { pcre2_code_free(code); }
void FreePcre2::operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
void FreePcre2::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}
void FreePcre2::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }

MatchMemory::MatchMemory()
    : context_(allocated(pcre2_match_context_create(nullptr))),
      stack_(allocated(pcre2_jit_stack_create(size_t{32} << 10, kMaxStackBytes, nullptr))),
      data_(allocated(pcre2_match_data_create(1, nullptr))) {
  pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

void MatchMemory::begin_text(size_t num_bytes) {
  end_ = thread_time() + kTimePerText + kTimePerByte * static_cast<int64_t>(num_bytes);
}

std::chrono::nanoseconds MatchMemory::time_left() const {
  return end_ == std::chrono::nanoseconds::max() ? end_ : end_ - thread_time();
}

Regex::Regex(std::string_view pattern, const std::string& source)
    : pattern_(pattern), source_(source) {
  TRIREME_CHECK(pattern.size() <= kMaxPatternBytes, source, ": a pattern has ", pattern.size(),
                " bytes; expected at most ", kMaxPatternBytes);
  const std::string translated = as_pcre2(pattern, source);
  struct Free {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, Free> context(
      allocated(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(
      units(translated), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, context.get()));
  TRIREME_CHECK(code_ != nullptr, source, ": the pattern \"", shown(pattern, 200),
                "\" is not a regular expression: ", reason_of(error));
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  TRIREME_CHECK(matches_nothing == 0, source, ": the pattern \"", shown(pattern, 200),
                "\" matches the empty text; expected one that takes a character at least");
  // Where the processor has no compiler in PCRE2, matches are interpreted.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

void Regex::refuse(std::string_view text, std::string_view reason) const {
  throw ConfigError(concat(source_, ": the pattern \"", shown(pattern_, 200),
                           "\" takes too long on a text of ", text.size(), " bytes (", reason,
                           "): give a tokenizer whose pattern does not try the same text again and "
                           "again"));
}

// PCRE2 cannot be interrupted, and each place where a match may begin can take it to the end of the
// text. So it tries one place, which is where most matches begin, and then more and more of them.
std::optional<TextRange> Regex::find(std::string_view text, size_t begin,
                                     MatchMemory& memory) const {
  const uint64_t max_steps = kMaxSteps + kMaxStepsPerByte * text.size();
  pcre2_set_match_limit(memory.context_.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(max_steps, UINT32_MAX)));
  if (++memory.num_finds_ % kFindsBetweenLooks == 0 && memory.time_left().count() < 0)
    refuse(text, "processor time");
  std::chrono::nanoseconds left = std::chrono::nanoseconds::max();  // when it last looked
  for (size_t num_places = 1;;) {
    const size_t last = std::min(begin + num_places - 1, text.size());
    pcre2_set_offset_limit(memory.context_.get(), last);
    const int found = pcre2_match(code_.get(), units(text), text.size(), begin, PCRE2_NO_UTF_CHECK,
                                  memory.data_.get(), memory.context_.get());
    if (found >= 0) {
      const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(memory.data_.get());
      return TextRange{range[0], range[1]};
    }
    if (found != PCRE2_ERROR_NOMATCH) refuse(text, reason_of(found));
    if (last == text.size()) return std::nullopt;
    bool is_short = num_places < kPlacesBetweenLooks;
    if (!is_short) {
      const std::chrono::nanoseconds now_left = memory.time_left();
      if (now_left.count() < 0) refuse(text, "processor time");
      is_short = left - now_left < kShortSearch;
      left = now_left;
    }
    if (is_short) num_places = 4 * num_places + 12;
    begin = next_character(text, last + 1);
  }
}

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
    // A general category has one or two letters. Most other names are those of scripts.
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

}  // namespace trireme::dataset
