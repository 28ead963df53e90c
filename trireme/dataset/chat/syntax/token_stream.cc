#include "trireme/dataset/chat/syntax/token_stream.h"

#include <algorithm>

#include "trireme/base/words.h"

namespace trireme::dataset::chat {

namespace {

constexpr size_t kShownToken = 40;

std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "text outside of a tag";
    case TokenKind::kOutputBegin: return "{{";
    case TokenKind::kOutputEnd: return "}}";
    case TokenKind::kBlockBegin: return "{%";
    case TokenKind::kBlockEnd: return "%}";
    case TokenKind::kName:
    case TokenKind::kOperator: return shown(token.text, kShownToken);
    case TokenKind::kText: return "the text '" + shown(token.text, kShownToken) + "'";
    case TokenKind::kInteger:
    case TokenKind::kNumber: return "a number";
    case TokenKind::kEnd: return "the end of the template";
  }
  return "";
}

}  // namespace

const Token& TokenStream::ahead(size_t distance) const {
  return tokens_[std::min(position_ + distance, tokens_.size() - 1)];
}

Token TokenStream::take() {
  run_.set_line(current().line);
  if (position_ + 1 == tokens_.size()) return current();
  return std::move(tokens_[position_++]);
}

void TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_expected(text);
}

void TokenStream::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_expected(text);
}

void TokenStream::expect(TokenKind kind) {
  if (current().kind != kind) fail_expected(described({.kind = kind}));
  take();
}

std::string TokenStream::take_name() {
  if (current().kind != TokenKind::kName) fail_expected("a name");
  return take().text;
}

void TokenStream::fail_expected(std::string_view expected) const {
  fail(concat("expected ", expected, ", found ", described(current())));
}

void TokenStream::fail(const std::string& problem) const {
  run_.set_line(current().line);
  run_.fail(problem);
}

SyntaxLevel::SyntaxLevel(const TokenStream& tokens, size_t& depth) : depth_(depth) {
  const size_t limit = tokens.run().limits().max_syntax_depth;
  if (depth_ >= limit) {
    tokens.fail(concat("blocks and expressions are nested more than ", limit,
                       " deep; take parts of them into variables or macros"));
  }
  ++depth_;
}

NameId VariableNames::id_of(const std::string& name) {
  const auto [found, is_new] = ids_.emplace(name, names_.size());
  if (is_new) names_.push_back(name);
  return found->second;
}

bool VariableNames::is_used_since(size_t begin, std::string_view name) const {
  return std::find(uses_.begin() + static_cast<std::ptrdiff_t>(begin), uses_.end(), name) !=
         uses_.end();
}

void VariableNames::check_calls(Run& run) const {
  for (const auto& [name, line] : called_) {
    // `caller` is what a call block encloses.
    if (find_function(name) || assigned_.contains(name) || name == "caller") continue;
    run.set_line(line);
    run.fail("calls ", shown(name, kShownToken),
             ", which is no function; functions are dict, namespace, raise_exception, range, "
             "strftime_now and the template's macros");
  }
}

}  // namespace trireme::dataset::chat
