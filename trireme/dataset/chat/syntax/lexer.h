// Splits a chat template into tokens, and trims white space around tags as Jinja does with its
// options trim_blocks and lstrip_blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/chat/values/run.h"

namespace trireme::dataset::chat {

enum class TokenKind {
  kData,  // text outside of tags
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,  // a literal
  kInteger,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  size_t line = 1;
  std::string text{};  // data, a name, the value of a literal, an operator
  int64_t integer = 0;
  double number = 0;
};

// The last token is kEnd. Leaves the line of `run` where reading stopped.
// Throws: ConfigError when the text is not UTF-8, a comment or a literal has no end, or a character
//         does not belong in a tag
std::vector<Token> split_into_tokens(Run& run, std::string_view text);

}  // namespace trireme::dataset::chat
