// Finds a tokenizer's added tokens, such as <|im_start|>, in text, before it is split.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/byte_level/regex.h"

namespace trireme::dataset {

// As in tokenizer.json. A special token differs from others only in the defaults of its file.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only between characters that are not of a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in text that has been normalised
};

class AddedTokens {
 public:
  // Ignores `normalized`: the caller gives those that are looked for in the same text. No content
  // is empty, and no two are the same.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Calls on_text(part) for the text between added tokens and on_token(id, part) for each of those,
  // in order; the parts together are the text. Where several begin, the longest counts. `text` must
  // be well-formed UTF-8.
  void split(std::string_view text, MatchMemory& memory,
             const std::function<void(std::string_view)>& on_text,
             const std::function<void(int32_t, std::string_view)>& on_token) const;

 private:
  // The longest token at the beginning of `text`; null: none.
  const AddedToken* longest_at(std::string_view text) const;
  bool stands_alone(std::string_view text, size_t begin, size_t end, MatchMemory& memory) const;

  std::vector<AddedToken> tokens_;           // sorted by content
  std::array<size_t, 257> first_of_byte_{};  // those that begin with byte b: [b] up to [b + 1]
  Regex word_;
  Regex space_;
};

}  // namespace trireme::dataset
