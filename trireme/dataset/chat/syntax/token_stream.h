// The tokens of a template one by one, the names of its variables, and how deep its parts are.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/syntax/lexer.h"
#include "trireme/dataset/chat/syntax/syntax.h"

namespace trireme::dataset::chat {

class TokenStream {
 public:
  TokenStream(Run& run, std::vector<Token> tokens) : run_(run), tokens_(std::move(tokens)) {}

  Run& run() const { return run_; }
  const Token& current() const { return tokens_[position_]; }
  // Another token than the current one; the last is repeated.
  const Token& ahead(size_t distance = 1) const;
  // Returns the current token and goes on.
  Token take();

  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool is_name(std::string_view text) const { return is(TokenKind::kName, text); }
  bool skip_operator(std::string_view text) { return is_operator(text) && skip(); }
  bool skip_name(std::string_view text) { return is_name(text) && skip(); }
  // Throws: ConfigError when the current token is another
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  void expect(TokenKind kind);
  std::string take_name();

  // Throws ConfigError at the line of the current token: "..., found ...".
  [[noreturn]] void fail_expected(std::string_view expected) const;
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  bool is(TokenKind kind, std::string_view text) const {
    return current().kind == kind && current().text == text;
  }
  bool skip() {
    take();
    return true;
  }

  Run& run_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

// One level of the parser's recursion, while it exists.
class SyntaxLevel {
 public:
  SyntaxLevel(const TokenStream& tokens, size_t& depth);
  ~SyntaxLevel() { --depth_; }
  SyntaxLevel(const SyntaxLevel&) = delete;
  SyntaxLevel& operator=(const SyntaxLevel&) = delete;

 private:
  size_t& depth_;
};

// The variables of a template: a number for each name, and how they are used.
class VariableNames {
 public:
  NameId id_of(const std::string& name);
  void note_use(const std::string& name) { uses_.push_back(name); }
  // Uses since there were `begin` of them.
  bool is_used_since(size_t begin, std::string_view name) const;
  size_t num_uses() const { return uses_.size(); }

  void note_assignment(const std::string& name) { assigned_.insert(name); }
  void note_call(const std::string& name, size_t line) { called_.emplace(name, line); }
  // Calls of names that are no functions, and that the template never sets.
  // Throws: ConfigError, the first of them
  void check_calls(Run& run) const;

  std::vector<std::string> take() { return std::move(names_); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, NameId> ids_;
  std::vector<std::string> uses_;
  std::set<std::string> assigned_;
  std::map<std::string, size_t> called_;  // the line of the first call
};

}  // namespace trireme::dataset::chat
