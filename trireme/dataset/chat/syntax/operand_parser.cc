#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/syntax/expression_parser.h"

namespace trireme::dataset::chat {

// What operators stand between: literals, variables, calls, filters and tests.

namespace {

constexpr size_t kShownName = 40;
constexpr size_t kMaxNamedArguments = 255;

bool is_literal_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"true", "True", "false", "False", "none", "None"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

ExpressionPointer ExpressionParser::parse_primary() {
  const size_t line = tokens_.current().line;
  switch (tokens_.current().kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kText: return parse_text();
    case TokenKind::kInteger: return constant(Value::integer(tokens_.take().integer), line);
    case TokenKind::kNumber: return constant(Value::number(tokens_.take().number), line);
    default: break;
  }
  if (tokens_.is_operator("[")) return parse_list();
  if (tokens_.is_operator("{")) return parse_dict();
  if (!tokens_.skip_operator("(")) tokens_.fail_expected("an expression");
  ExpressionPointer node = parse_tuple({.may_be_empty = true});
  tokens_.expect_operator(")");
  return node;
}

ExpressionPointer ExpressionParser::parse_name() {
  const size_t line = tokens_.current().line;
  const std::string name = tokens_.take_name();
  if (is_literal_name(name)) {
    const bool is_none = name == "none" || name == "None";
    const bool is_true = name == "true" || name == "True";
    return constant(is_none ? Value::none() : Value::boolean(is_true), line);
  }
  names_.note_use(name);
  ExpressionPointer node = make(ExpressionKind::kName, line);
  node->name = names_.id_of(name);
  if (tokens_.is_operator("(")) names_.note_call(name, line);
  return node;
}

ExpressionPointer ExpressionParser::parse_text() {
  const size_t line = tokens_.current().line;
  std::string text;
  while (tokens_.current().kind == TokenKind::kText) text += tokens_.take().text;
  return constant(Value::text(tokens_.run(), std::move(text)), line);
}

ExpressionPointer ExpressionParser::parse_list() {
  ExpressionPointer node = make(ExpressionKind::kList, tokens_.current().line);
  tokens_.expect_operator("[");
  while (!tokens_.is_operator("]")) {
    node->parts.push_back(parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return finish(std::move(node));
}

ExpressionPointer ExpressionParser::parse_dict() {
  ExpressionPointer node = make(ExpressionKind::kDict, tokens_.current().line);
  tokens_.expect_operator("{");
  while (!tokens_.is_operator("}")) {
    node->parts.push_back(parse());
    tokens_.expect_operator(":");
    node->parts.push_back(parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return finish(std::move(node));
}

ExpressionPointer ExpressionParser::parse_postfix(ExpressionPointer node) {
  while (true) {
    if (tokens_.is_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (tokens_.is_operator("[")) {
      node = parse_item(std::move(node));
    } else if (tokens_.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPointer ExpressionParser::parse_attribute(ExpressionPointer node) {
  const size_t line = tokens_.current().line;
  tokens_.expect_operator(".");
  if (tokens_.current().kind == TokenKind::kInteger) {
    return make(ExpressionKind::kItem, line, std::move(node),
                constant(Value::integer(tokens_.take().integer), line));
  }
  Value name = Value::text(tokens_.run(), tokens_.take_name());
  node = make(ExpressionKind::kAttribute, line, std::move(node));
  node->constant = std::move(name);
  return node;
}

ExpressionPointer ExpressionParser::parse_item(ExpressionPointer node) {
  const size_t line = tokens_.current().line;
  tokens_.expect_operator("[");
  ExpressionPointer begin = tokens_.is_operator(":") ? nullptr : parse();
  if (!tokens_.skip_operator(":")) {
    tokens_.expect_operator("]");
    return make(ExpressionKind::kItem, line, std::move(node), std::move(begin));
  }
  const auto bound = [&]() -> ExpressionPointer {
    return tokens_.is_operator(":") || tokens_.is_operator("]") ? nullptr : parse();
  };
  ExpressionPointer end = bound();
  ExpressionPointer step = tokens_.skip_operator(":") ? bound() : nullptr;
  tokens_.expect_operator("]");
  return make(ExpressionKind::kSlice, line, std::move(node), std::move(begin), std::move(end),
              std::move(step));
}

ExpressionPointer ExpressionParser::parse_call(ExpressionPointer node) {
  const size_t line = tokens_.current().line;
  ExpressionPointer call = make(ExpressionKind::kCall, line);
  call->parts.push_back(std::move(node));
  call->arguments = parse_arguments();
  return finish(std::move(call));
}

ExpressionPointer ExpressionParser::parse_filters(ExpressionPointer input) {
  while (tokens_.skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExpressionPointer ExpressionParser::parse_filter(ExpressionPointer input) {
  ExpressionPointer node = make(ExpressionKind::kFilter, tokens_.current().line);
  const Token& token = tokens_.current();
  node->filter = token.kind == TokenKind::kName ? find_filter(token.text) : nullptr;
  if (token.kind == TokenKind::kName && !node->filter) {
    tokens_.fail(concat("there is no filter ", shown(token.text, kShownName), " here; there are ",
                        filter_names()));
  }
  const std::string name = tokens_.take_name();
  node->parts.push_back(std::move(input));
  if (tokens_.is_operator("(")) node->arguments = parse_arguments();
  check_names_in(name, node->arguments);
  return finish(std::move(node));
}

// `map`, `select` and their kin take the name of another filter or test, mostly as a literal.
void ExpressionParser::check_names_in(std::string_view filter,
                                      const ArgumentSyntax& arguments) const {
  const bool takes_filter = filter == "map";
  const bool takes_attribute = filter == "selectattr" || filter == "rejectattr";
  if (!takes_filter && !takes_attribute && filter != "select" && filter != "reject") return;
  const size_t index = takes_attribute ? 1 : 0;
  if (index >= arguments.positional.size()) return;
  const Text* name = arguments.positional[index]->constant.as_text();
  if (arguments.positional[index]->kind != ExpressionKind::kConstant || !name) return;
  if (takes_filter ? find_filter(name->bytes) != nullptr : find_test(name->bytes) != nullptr)
    return;
  tokens_.fail(concat("there is no ", takes_filter ? "filter " : "test ",
                      shown(name->bytes, kShownName), " here; there are ",
                      takes_filter ? filter_names() : test_names()));
}

ExpressionPointer ExpressionParser::parse_test(ExpressionPointer input) {
  const size_t line = tokens_.current().line;
  tokens_.expect_name("is");
  const bool negated = tokens_.skip_name("not");
  ExpressionPointer node = make(ExpressionKind::kTest, line);
  const Token& token = tokens_.current();
  node->test = token.kind == TokenKind::kName ? find_test(token.text) : nullptr;
  if (token.kind == TokenKind::kName && !node->test) {
    tokens_.fail(concat("there is no test ", shown(token.text, kShownName), " here; there are ",
                        test_names()));
  }
  tokens_.take_name();
  node->parts.push_back(std::move(input));
  const TokenKind kind = tokens_.current().kind;
  const bool ends = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  const bool begins = kind == TokenKind::kName || kind == TokenKind::kText ||
                      kind == TokenKind::kInteger || kind == TokenKind::kNumber ||
                      tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    node->arguments = parse_arguments();
  } else if (begins && !ends) {
    if (tokens_.is_name("is")) tokens_.fail("tests cannot follow each other; join them with and");
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  node = finish(std::move(node));
  return negated ? make(ExpressionKind::kNot, line, std::move(node)) : std::move(node);
}

ArgumentSyntax ExpressionParser::parse_arguments() {
  ArgumentSyntax arguments;
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    parse_argument(arguments);
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

void ExpressionParser::parse_argument(ArgumentSyntax& arguments) {
  const auto require = [&](bool in_order) {
    if (!in_order) tokens_.fail("arguments are out of order; write f(a, name=b, *c, **d)");
  };
  const Token& next = tokens_.ahead();
  const bool is_named = tokens_.current().kind == TokenKind::kName &&
                        next.kind == TokenKind::kOperator && next.text == "=";
  if (tokens_.skip_operator("*")) {
    require(!arguments.all_positional && !arguments.all_named);
    arguments.all_positional = parse();
  } else if (tokens_.skip_operator("**")) {
    require(!arguments.all_named);
    arguments.all_named = parse();
  } else if (is_named) {
    require(!arguments.all_named);
    std::string name = tokens_.take_name();
    tokens_.take();
    const bool is_new = std::ranges::none_of(
        arguments.named, [&](const auto& argument) { return argument.first == name; });
    if (!is_new) tokens_.fail(concat("the argument ", name, " is given twice"));
    if (arguments.named.size() >= kMaxNamedArguments) {
      tokens_.fail(concat("a call has more than ", kMaxNamedArguments, " named arguments"));
    }
    arguments.named.emplace_back(std::move(name), parse());
  } else {
    require(!arguments.all_positional && !arguments.all_named && arguments.named.empty());
    arguments.positional.push_back(parse());
  }
}

Target ExpressionParser::parse_target(std::string_view end_name) {
  const auto at_end = [&] {
    return tokens_.current().kind == TokenKind::kBlockEnd || tokens_.is_operator(")") ||
           tokens_.is_operator("=") || (!end_name.empty() && tokens_.is_name(end_name));
  };
  Target target{.kind = Target::Kind::kTuple, .line = tokens_.current().line};
  bool has_comma = false;
  while (!at_end()) {
    target.parts.push_back(parse_single_target());
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (target.parts.empty()) tokens_.fail_expected("the name of a variable");
  if (!has_comma) {
    Target only = std::move(target.parts.front());
    return only;
  }
  return target;
}

Target ExpressionParser::parse_single_target() {
  const SyntaxLevel level(tokens_, depth_);
  if (tokens_.skip_operator("(")) {
    Target target = parse_target();
    tokens_.expect_operator(")");
    return target;
  }
  Target target{.line = tokens_.current().line};
  if (tokens_.current().kind != TokenKind::kName) tokens_.fail_expected("the name of a variable");
  const std::string name = tokens_.take_name();
  if (is_literal_name(name) || name == "loop") {
    tokens_.fail(concat("cannot set ", name, "; choose another name"));
  }
  target.name = names_.id_of(name);
  if (tokens_.skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.attribute = tokens_.take_name();
    names_.note_use(name);
  } else {
    names_.note_assignment(name);
  }
  return target;
}

}  // namespace trireme::dataset::chat
