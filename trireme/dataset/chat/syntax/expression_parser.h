// Reads the expressions of a chat template, with Jinja's precedence.
#pragma once

#include <optional>
#include <string_view>

#include "trireme/dataset/chat/syntax/token_stream.h"

namespace trireme::dataset::chat {

struct TupleSyntax {
  bool conditional = true;         // whether `a if b` may stand in it
  bool may_be_empty = false;       // within parentheses
  std::string_view end_name = "";  // a name that ends it
};

class ExpressionParser {
 public:
  // Both must outlive this. `depth` counts the levels of the whole parser.
  ExpressionParser(TokenStream& tokens, VariableNames& names, size_t& depth)
      : tokens_(tokens), names_(names), depth_(depth) {}

  // Throws: ConfigError, as do the others, when there is no well-formed expression
  ExpressionPointer parse(bool conditional = true);
  // Several with commas between them are a tuple.
  ExpressionPointer parse_tuple(const TupleSyntax& syntax = {});
  // `| a | b(c)`, applied to `input`, which may be null.
  ExpressionPointer parse_filters(ExpressionPointer input);
  // One filter by its name.
  ExpressionPointer parse_filter(ExpressionPointer input);
  Target parse_target(std::string_view end_name = "");

 private:
  ExpressionPointer make(ExpressionKind kind, size_t line) const;
  template <typename... Parts>
  ExpressionPointer make(ExpressionKind kind, size_t line, Parts... parts) const;
  ExpressionPointer constant(Value value, size_t line) const;
  // Counts the depth of a node that is complete.
  ExpressionPointer finish(ExpressionPointer node) const;

  ExpressionPointer parse_or();
  ExpressionPointer parse_and();
  ExpressionPointer parse_not();
  ExpressionPointer parse_comparison();
  std::optional<Comparison> take_comparison();
  ExpressionPointer parse_sum();
  ExpressionPointer parse_concatenation();
  ExpressionPointer parse_product();
  ExpressionPointer parse_power();
  ExpressionPointer parse_unary(bool filters = true);
  ExpressionPointer parse_primary();
  ExpressionPointer parse_name();
  ExpressionPointer parse_text();
  ExpressionPointer parse_list();
  ExpressionPointer parse_dict();
  ExpressionPointer parse_postfix(ExpressionPointer node);
  ExpressionPointer parse_attribute(ExpressionPointer node);
  ExpressionPointer parse_item(ExpressionPointer node);
  ExpressionPointer parse_call(ExpressionPointer node);
  ExpressionPointer parse_test(ExpressionPointer node);
  ArgumentSyntax parse_arguments();
  void parse_argument(ArgumentSyntax& arguments);
  void check_names_in(std::string_view filter, const ArgumentSyntax& arguments) const;
  Target parse_single_target();

  TokenStream& tokens_;
  VariableNames& names_;
  size_t& depth_;
};

template <typename... Parts>
ExpressionPointer ExpressionParser::make(ExpressionKind kind, size_t line, Parts... parts) const {
  ExpressionPointer node = make(kind, line);
  (node->parts.push_back(std::move(parts)), ...);
  return finish(std::move(node));
}

}  // namespace trireme::dataset::chat
