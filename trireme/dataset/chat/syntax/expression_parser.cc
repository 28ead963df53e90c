#include "trireme/dataset/chat/syntax/expression_parser.h"

#include <algorithm>

namespace trireme::dataset::chat {

ExpressionPointer ExpressionParser::make(ExpressionKind kind, size_t line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionPointer ExpressionParser::constant(Value value, size_t line) const {
  ExpressionPointer node = make(ExpressionKind::kConstant, line);
  node->constant = std::move(value);
  return node;
}

ExpressionPointer ExpressionParser::finish(ExpressionPointer node) const {
  const auto count = [&](const ExpressionPointer& part) {
    if (part) node->depth = std::max(node->depth, part->depth + 1);
  };
  for (const auto& part : node->parts) count(part);
  for (const auto& part : node->arguments.positional) count(part);
  for (const auto& [name, part] : node->arguments.named) count(part);
  count(node->arguments.all_positional);
  count(node->arguments.all_named);
  const size_t limit = tokens_.run().limits().max_syntax_depth;
  if (node->depth > limit) {
    tokens_.fail(concat("an expression is nested more than ", limit,
                        " deep; take parts of it into variables"));
  }
  return node;
}

ExpressionPointer ExpressionParser::parse(bool conditional) {
  const SyntaxLevel level(tokens_, depth_);
  const size_t line = tokens_.current().line;
  ExpressionPointer node = parse_or();
  while (conditional && tokens_.skip_name("if")) {
    ExpressionPointer condition = parse_or();
    ExpressionPointer otherwise = tokens_.skip_name("else") ? parse() : nullptr;
    node = make(ExpressionKind::kConditional, line, std::move(condition), std::move(node),
                std::move(otherwise));
  }
  return node;
}

ExpressionPointer ExpressionParser::parse_tuple(const TupleSyntax& syntax) {
  const size_t line = tokens_.current().line;
  const auto at_end = [&] {
    const TokenKind kind = tokens_.current().kind;
    return kind == TokenKind::kOutputEnd || kind == TokenKind::kBlockEnd ||
           tokens_.is_operator(")") ||
           (!syntax.end_name.empty() && tokens_.is_name(syntax.end_name));
  };
  ExpressionPointer tuple = make(ExpressionKind::kTuple, line);
  bool has_comma = false;
  while (!at_end()) {
    tuple->parts.push_back(parse(syntax.conditional));
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (!has_comma && tuple->parts.size() == 1) return std::move(tuple->parts.front());
  if (!has_comma && !syntax.may_be_empty) tokens_.fail_expected("an expression");
  return finish(std::move(tuple));
}

ExpressionPointer ExpressionParser::parse_or() {
  const size_t line = tokens_.current().line;
  ExpressionPointer left = parse_and();
  while (tokens_.skip_name("or")) {
    left = make(ExpressionKind::kOr, line, std::move(left), parse_and());
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_and() {
  const size_t line = tokens_.current().line;
  ExpressionPointer left = parse_not();
  while (tokens_.skip_name("and")) {
    left = make(ExpressionKind::kAnd, line, std::move(left), parse_not());
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_not() {
  const size_t line = tokens_.current().line;
  if (!tokens_.skip_name("not")) return parse_comparison();
  const SyntaxLevel level(tokens_, depth_);
  return make(ExpressionKind::kNot, line, parse_not());
}

std::optional<Comparison> ExpressionParser::take_comparison() {
  constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessOrEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterOrEqual}};
  for (const auto& [sign, comparison] : kOperators) {
    if (tokens_.skip_operator(sign)) return comparison;
  }
  if (tokens_.skip_name("in")) return Comparison::kIn;
  const Token& next = tokens_.ahead();
  if (tokens_.is_name("not") && next.kind == TokenKind::kName && next.text == "in") {
    tokens_.take();
    tokens_.take();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

ExpressionPointer ExpressionParser::parse_comparison() {
  const size_t line = tokens_.current().line;
  ExpressionPointer first = parse_sum();
  ExpressionPointer node;
  while (const auto comparison = take_comparison()) {
    if (!node) {
      node = make(ExpressionKind::kCompare, line);
      node->parts.push_back(std::move(first));
    }
    node->comparisons.push_back(*comparison);
    node->parts.push_back(parse_sum());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExpressionPointer ExpressionParser::parse_sum() {
  const size_t line = tokens_.current().line;
  ExpressionPointer left = parse_concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const auto arithmetic = tokens_.take().text == "+" ? Arithmetic::kAdd : Arithmetic::kSubtract;
    left = make(ExpressionKind::kArithmetic, line, std::move(left), parse_concatenation());
    left->arithmetic = arithmetic;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_concatenation() {
  const size_t line = tokens_.current().line;
  ExpressionPointer first = parse_product();
  if (!tokens_.is_operator("~")) return first;
  ExpressionPointer node = make(ExpressionKind::kConcatenate, line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_operator("~")) node->parts.push_back(parse_product());
  return finish(std::move(node));
}

ExpressionPointer ExpressionParser::parse_product() {
  constexpr std::pair<std::string_view, Arithmetic> kOperators[] = {
      {"*", Arithmetic::kMultiply},
      {"/", Arithmetic::kDivide},
      {"//", Arithmetic::kFloorDivide},
      {"%", Arithmetic::kModulo}};
  const size_t line = tokens_.current().line;
  ExpressionPointer left = parse_power();
  while (tokens_.current().kind == TokenKind::kOperator) {
    const auto found = std::ranges::find(kOperators, tokens_.current().text,
                                         [](const auto& entry) { return entry.first; });
    if (found == std::end(kOperators)) break;
    tokens_.take();
    left = make(ExpressionKind::kArithmetic, line, std::move(left), parse_power());
    left->arithmetic = found->second;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_power() {
  const size_t line = tokens_.current().line;
  ExpressionPointer left = parse_unary();
  while (tokens_.skip_operator("**")) {
    left = make(ExpressionKind::kArithmetic, line, std::move(left), parse_unary());
    left->arithmetic = Arithmetic::kPower;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_unary(bool filters) {
  const SyntaxLevel level(tokens_, depth_);
  const size_t line = tokens_.current().line;
  ExpressionPointer node;
  if (tokens_.skip_operator("-")) {
    node = make(ExpressionKind::kNegative, line, parse_unary(false));
  } else if (tokens_.skip_operator("+")) {
    node = make(ExpressionKind::kPositive, line, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  while (filters) {
    if (tokens_.is_operator("|")) {
      node = parse_filters(std::move(node));
    } else if (tokens_.is_name("is")) {
      node = parse_test(std::move(node));
    } else if (tokens_.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

}  // namespace trireme::dataset::chat
