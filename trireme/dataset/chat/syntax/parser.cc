#include "trireme/dataset/chat/syntax/parser.h"

#include <algorithm>
#include <initializer_list>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/syntax/expression_parser.h"

namespace trireme::dataset::chat {

namespace {

constexpr size_t kShownTag = 40;

// Tags that Jinja has, and why they are not here.
std::string_view refusal_of(std::string_view tag) {
  constexpr std::string_view kFiles[] = {"include", "import", "extends", "from"};
  constexpr std::string_view kOthers[] = {"block", "with",  "autoescape", "print",
                                          "do",    "trans", "debug"};
  if (std::ranges::find(kFiles, tag) != std::end(kFiles)) {
    return "would read other templates; write their content into this one";
  }
  if (std::ranges::find(kOthers, tag) != std::end(kOthers)) {
    return "is not supported; rewrite the template without it";
  }
  return "is unknown; there are break, call, continue, filter, for, generation, if, macro, raw and "
         "set";
}

class Parser {
 public:
  Parser(Run& run, std::string_view text)
      : tokens_(run, split_into_tokens(run, text)), expressions_(tokens_, names_, depth_) {}

  Program parse() {
    Program program;
    program.body = parse_body({});
    names_.check_calls(tokens_.run());
    program.names = names_.take();
    program.has_generation = has_generation_;
    return program;
  }

 private:
  // Statements up to a tag that is one of `ends`, whose name is the current token then; without
  // `ends`, up to the end of the template.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const SyntaxLevel level(tokens_, depth_);
    Body body;
    while (true) {
      const size_t line = tokens_.current().line;
      switch (tokens_.current().kind) {
        case TokenKind::kData: {
          Statement data{.kind = StatementKind::kData, .line = line};
          data.data = tokens_.take().text;
          body.push_back(std::move(data));
          break;
        }
        case TokenKind::kOutputBegin: {
          tokens_.take();
          Statement output{.kind = StatementKind::kOutput, .line = line};
          output.expressions.push_back(expressions_.parse_tuple());
          tokens_.expect(TokenKind::kOutputEnd);
          body.push_back(std::move(output));
          break;
        }
        case TokenKind::kBlockBegin:
          tokens_.take();
          if (is_one_of(ends)) return body;
          body.push_back(parse_statement());
          tokens_.expect(TokenKind::kBlockEnd);
          break;
        default:
          if (ends.size() > 0) tokens_.fail_expected(concat("{% ", *(ends.end() - 1), " %}"));
          return body;
      }
    }
  }

  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::ranges::any_of(names, [&](auto name) { return tokens_.is_name(name); });
  }

  // A body behind a tag, whose end it takes, and the name of the tag that ends the body.
  Body parse_block(std::initializer_list<std::string_view> ends) {
    tokens_.skip_operator(":");
    tokens_.expect(TokenKind::kBlockEnd);
    return parse_body(ends);
  }
  Body parse_block_to(std::string_view end) {
    Body body = parse_block({end});
    tokens_.take();
    return body;
  }

  Statement parse_statement() {
    const size_t line = tokens_.current().line;
    if (tokens_.current().kind != TokenKind::kName) tokens_.fail_expected("the name of a tag");
    const std::string tag = tokens_.current().text;
    if (tag == "if") return parse_if(line);
    if (tag == "for") return parse_for(line);
    if (tag == "set") return parse_set(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "call") return parse_call_block(line);
    if (tag == "filter") return parse_filter_block(line);
    if (tag == "generation") return parse_generation(line);
    if (tag == "break" || tag == "continue") return parse_loop_control(line);
    if (tag.starts_with("end") || tag == "else" || tag == "elif") {
      tokens_.fail(concat("the tag ", shown(tag, kShownTag),
                          " closes nothing; check the tags "
                          "around it"));
    }
    tokens_.fail(concat("the tag ", shown(tag, kShownTag), " ", refusal_of(tag)));
  }

  Statement parse_if(size_t line) {
    Statement statement{.kind = StatementKind::kIf, .line = line};
    do {
      tokens_.take();  // if or elif
      statement.expressions.push_back(expressions_.parse_tuple({.conditional = false}));
      statement.bodies.push_back(parse_block({"elif", "else", "endif"}));
    } while (tokens_.is_name("elif"));
    if (tokens_.skip_name("else")) {
      statement.bodies.push_back(parse_block({"endif"}));
    }
    tokens_.expect_name("endif");
    return statement;
  }

  Statement parse_for(size_t line) {
    Statement statement{.kind = StatementKind::kFor, .line = line};
    tokens_.take();
    statement.target = expressions_.parse_target("in");
    refuse_attributes(statement.target);
    tokens_.expect_name("in");
    statement.expressions.push_back(
        expressions_.parse_tuple({.conditional = false, .end_name = "recursive"}));
    statement.expressions.push_back(tokens_.skip_name("if") ? expressions_.parse() : nullptr);
    if (tokens_.is_name("recursive")) {
      tokens_.fail("a loop is recursive, which is not supported; use a macro that calls itself");
    }
    ++loops_;
    statement.bodies.push_back(parse_block({"else", "endfor"}));
    --loops_;
    if (tokens_.skip_name("else")) statement.bodies.push_back(parse_block({"endfor"}));
    tokens_.expect_name("endfor");
    return statement;
  }

  void refuse_attributes(const Target& target) const {
    if (target.kind == Target::Kind::kAttribute) {
      tokens_.fail("a loop sets an attribute; give it a variable");
    }
    for (const Target& part : target.parts) refuse_attributes(part);
  }

  Statement parse_set(size_t line) {
    Statement statement{.kind = StatementKind::kSet, .line = line};
    tokens_.take();
    statement.target = expressions_.parse_target();
    if (tokens_.skip_operator("=")) {
      statement.expressions.push_back(expressions_.parse_tuple());
      return statement;
    }
    statement.kind = StatementKind::kSetBlock;
    statement.expressions.push_back(expressions_.parse_filters(nullptr));
    statement.bodies.push_back(parse_block_to("endset"));
    return statement;
  }

  Statement parse_filter_block(size_t line) {
    Statement statement{.kind = StatementKind::kFilterBlock, .line = line};
    tokens_.take();
    statement.expressions.push_back(expressions_.parse_filters(expressions_.parse_filter(nullptr)));
    statement.bodies.push_back(parse_block_to("endfilter"));
    return statement;
  }

  // What a macro, a caller or generated text enclose: break and continue do not leave it.
  void parse_macro_body(Macro& macro, std::string_view end) {
    const size_t loops = std::exchange(loops_, 0);
    const size_t first_use = names_.num_uses();
    macro.body = parse_block_to(end);
    loops_ = loops;
    macro.uses_caller = names_.is_used_since(first_use, "caller");
    macro.uses_varargs = names_.is_used_since(first_use, "varargs");
    macro.uses_kwargs = names_.is_used_since(first_use, "kwargs");
    for (const auto& parameter : macro.parameters) {
      if (parameter.name == "caller") macro.uses_caller = false;
      if (parameter.name == "varargs") macro.uses_varargs = false;
      if (parameter.name == "kwargs") macro.uses_kwargs = false;
    }
  }

  void parse_parameters(Macro& macro) {
    tokens_.expect_operator("(");
    bool has_default = false;
    while (!tokens_.is_operator(")")) {
      if (!macro.parameters.empty()) tokens_.expect_operator(",");
      Macro::Parameter parameter;
      parameter.name = tokens_.take_name();
      parameter.id = names_.id_of(parameter.name);
      names_.note_assignment(parameter.name);
      const bool is_new = std::ranges::none_of(
          macro.parameters, [&](const auto& other) { return other.id == parameter.id; });
      if (!is_new) tokens_.fail(concat("the parameter ", parameter.name, " is there twice"));
      if (macro.parameters.size() >= kMaxParameters) {
        tokens_.fail(concat("a macro has more than ", kMaxParameters, " parameters"));
      }
      if (tokens_.skip_operator("=")) {
        has_default = true;
        parameter.otherwise = expressions_.parse();
      } else if (has_default) {
        tokens_.fail("a parameter without a default is behind one with; put it before");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_operator(")");
  }

  Statement parse_macro(size_t line) {
    Statement statement{.kind = StatementKind::kMacro, .line = line};
    statement.macro = std::make_unique<Macro>();
    tokens_.take();
    Macro& macro = *statement.macro;
    macro.name = tokens_.take_name();
    statement.name = names_.id_of(macro.name);
    names_.note_assignment(macro.name);
    parse_parameters(macro);
    parse_macro_body(macro, "endmacro");
    return statement;
  }

  Statement parse_call_block(size_t line) {
    Statement statement{.kind = StatementKind::kCallBlock, .line = line};
    statement.macro = std::make_unique<Macro>();
    tokens_.take();
    if (tokens_.is_operator("(")) parse_parameters(*statement.macro);
    statement.expressions.push_back(expressions_.parse());
    if (statement.expressions.front()->kind != ExpressionKind::kCall) {
      tokens_.fail("a call block calls nothing; write {% call name(...) %}");
    }
    parse_macro_body(*statement.macro, "endcall");
    return statement;
  }

  Statement parse_generation(size_t line) {
    Statement statement{.kind = StatementKind::kGeneration, .line = line};
    Macro body;
    tokens_.take();
    has_generation_ = true;
    parse_macro_body(body, "endgeneration");
    statement.bodies.push_back(std::move(body.body));
    return statement;
  }

  Statement parse_loop_control(size_t line) {
    const bool breaks = tokens_.is_name("break");
    if (loops_ == 0) tokens_.fail("break or continue is outside of a loop; put it into one");
    tokens_.take();
    return {.kind = breaks ? StatementKind::kBreak : StatementKind::kContinue, .line = line};
  }

  static constexpr size_t kMaxParameters = 255;

  VariableNames names_;
  size_t depth_ = 0;
  TokenStream tokens_;
  ExpressionParser expressions_;
  size_t loops_ = 0;  // that a break may leave
  bool has_generation_ = false;
};

}  // namespace

Program parse(Run& run, std::string_view text) { return Parser(run, text).parse(); }

}  // namespace trireme::dataset::chat
