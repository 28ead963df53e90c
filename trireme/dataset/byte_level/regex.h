// A regular expression of tokenizer.json, compiled by PCRE2. Neither its size nor the work of a
// match nor that of a text is unbounded, so a pattern that explodes ends in an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
struct pcre2_real_code_8;
struct pcre2_real_jit_stack_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace trireme::dataset {

struct FreePcre2 {
  void operator()(pcre2_real_code_8* code) const;
  void operator()(pcre2_real_jit_stack_8* stack) const;
  void operator()(pcre2_real_match_context_8* context) const;
  void operator()(pcre2_real_match_data_8* data) const;
};

// Working memory of a match. One thread uses it at a time.
class MatchMemory {
 public:
  MatchMemory();

  // Begins a text of this many bytes. All its matches together may take half a second of this
  // thread's processor time and 2 us more for each byte, some 50 times what patterns of published
  // tokenizers take. Without this call there is no limit.
  void begin_text(size_t num_bytes);

 private:
  friend class Regex;
  // The processor time that is left; negative: the limit is passed.
  std::chrono::nanoseconds time_left() const;

  std::chrono::nanoseconds end_ = std::chrono::nanoseconds::max();  // in time of this thread
  uint32_t num_finds_ = 0;
  std::unique_ptr<pcre2_real_match_context_8, FreePcre2> context_;
  std::unique_ptr<pcre2_real_jit_stack_8, FreePcre2> stack_;
  std::unique_ptr<pcre2_real_match_data_8, FreePcre2> data_;
};

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  // `pattern` is Oniguruma's (pattern.h). `source` begins every message.
  // Throws: ConfigError when it does not compile, can match the empty text, or is too large
  Regex(std::string_view pattern, const std::string& source);

  // The first match in `text` that begins at `begin` or later; none is empty. `text` must be
  // well-formed UTF-8, and `begin` between two characters.
  // Throws: ConfigError when the search takes too many steps or too much memory, or the matches of
  //         the text take too long
  std::optional<TextRange> find(std::string_view text, size_t begin, MatchMemory& memory) const;

 private:
  [[noreturn]] void refuse(std::string_view text, std::string_view reason) const;

  std::string pattern_;
  std::string source_;
  std::unique_ptr<pcre2_real_code_8, FreePcre2> code_;
};

// The regular expressions of tokenizer.json are written for Oniguruma, in Ruby's syntax. This turns
// one into a pattern for PCRE2 that matches the same text.

// Takes literals, classes, groups, assertions about what is before or behind, quantifiers, anchors,
// \s, \d, \p{...} and escaped characters. Matches are the same with PCRE2's options UTF, UCP and
// MULTILINE, and lines that end in \n.
// Throws: ConfigError that begins with `source`, for whatever the two libraries read differently
std::string as_pcre2(std::string_view pattern, std::string_view source);

}  // namespace trireme::dataset
