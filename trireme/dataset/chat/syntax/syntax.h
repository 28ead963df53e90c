// The syntax tree of a chat template. Its depth is bounded, so walking it may recurse.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/builtins/call.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

struct Expression;
struct Statement;
using ExpressionPointer = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;
using NameId = size_t;  // of a variable, in Program::names

struct ArgumentSyntax {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer all_positional;  // *x
  ExpressionPointer all_named;       // **x
};

enum class ExpressionKind {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,       // parts: key, value, key, ...
  kAttribute,  // parts: of; constant: the name
  kItem,       // parts: of, key
  kSlice,      // parts: of, begin, end, step; null: left out
  kCall,       // parts: callee
  kFilter,     // parts: input; null within a filter block
  kTest,       // parts: input
  kNot,        // parts: operand, as in the next two
  kNegative,
  kPositive,
  kArithmetic,  // parts: left, right, as in the next two
  kAnd,
  kOr,
  kCompare,  // parts: the first, and one for each of `comparisons`
  kConcatenate,
  kConditional  // parts: condition, then, else; null: undefined
};

enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn
};

struct Expression {
  ExpressionKind kind;
  size_t line = 1;
  size_t depth = 1;
  std::vector<ExpressionPointer> parts{};
  Value constant{};
  NameId name = 0;
  Arithmetic arithmetic = Arithmetic::kAdd;
  std::vector<Comparison> comparisons{};
  ArgumentSyntax arguments{};  // of a call, a filter or a test
  FilterFunction filter = nullptr;
  TestFunction test = nullptr;
};

// What `set` and `for` assign to.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };

  Kind kind = Kind::kName;
  size_t line = 1;
  NameId name = 0;
  std::string attribute{};      // of the namespace `name`
  std::vector<Target> parts{};  // of a tuple
};

// Also what `call` and `generation` enclose: a macro without a name.
struct Macro {
  struct Parameter {
    std::string name;
    NameId id;
    ExpressionPointer otherwise;  // null: undefined
  };

  std::string name{};
  std::vector<Parameter> parameters{};
  Body body;  // without an initializer, which would need a complete Statement
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

enum class StatementKind {
  kData,
  kOutput,       // expressions: what to print
  kIf,           // expressions: one for each body; one body more: else
  kFor,          // expressions: what to go through, condition or null; bodies: loop, else
  kSet,          // expressions: the value
  kSetBlock,     // expressions: filters or null; bodies: the value
  kFilterBlock,  // expressions: filters; bodies: their input
  kMacro,
  kCallBlock,   // expressions: the call; macro: the caller
  kGeneration,  // bodies: what the model generates
  kBreak,
  kContinue
};

struct Statement {
  StatementKind kind;
  size_t line = 1;
  std::string data{};
  std::vector<ExpressionPointer> expressions{};
  std::vector<Body> bodies{};
  Target target{};
  NameId name = 0;  // of a macro
  std::unique_ptr<Macro> macro{};
};

struct Program {
  Body body;
  std::vector<std::string> names;
  bool has_generation = false;  // a {% generation %} somewhere
};

}  // namespace trireme::dataset::chat
