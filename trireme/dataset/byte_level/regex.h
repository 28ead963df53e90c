// A regular expression of tokenizer.json, compiled by PCRE2. Neither its size nor the work of a
// match is unbounded, so a pattern that explodes ends in an error.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_jit_stack_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace trireme::dataset::inline internal {

struct FreePcre2 {
  void operator()(pcre2_real_code_8* code) const;
  void operator()(pcre2_real_jit_stack_8* stack) const;
  void operator()(pcre2_real_match_context_8* context) const;
  void operator()(pcre2_real_match_data_8* data) const;
};

// What a match needs besides the expression. One thread uses it at a time.
class MatchMemory {
 public:
  MatchMemory();

 private:
  friend class Regex;
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
  // Throws: ConfigError when the search takes too many steps or too much memory
  std::optional<TextRange> find(std::string_view text, size_t begin, MatchMemory& memory) const;

 private:
  std::string pattern_;
  std::string source_;
  std::unique_ptr<pcre2_real_code_8, FreePcre2> code_;
};

}  // namespace trireme::dataset::inline internal
