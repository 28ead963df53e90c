#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/builtins/methods.h"
#include "trireme/dataset/chat/renderer.h"
#include "trireme/dataset/chat/values/subscript.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

// Each kind of expression has a function of its own, so that a level of recursion takes little of
// the stack.

Value Renderer::evaluate(const Expression& expression) {
  const Run::Deeper deeper(run_);
  run_.charge(1);
  run_.set_line(expression.line);
  const auto part = [&](size_t index) -> const Expression& { return *expression.parts[index]; };
  switch (expression.kind) {
    case ExpressionKind::kConstant: return expression.constant;
    case ExpressionKind::kName: return evaluate_name(expression);
    case ExpressionKind::kList: return evaluate_items(expression, Shape::kList);
    case ExpressionKind::kTuple: return evaluate_items(expression, Shape::kTuple);
    case ExpressionKind::kDict: return evaluate_dict(expression);
    case ExpressionKind::kAttribute: return evaluate_attribute(expression);
    case ExpressionKind::kItem: return evaluate_item(expression);
    case ExpressionKind::kSlice: return evaluate_slice(expression);
    case ExpressionKind::kCall: return evaluate_call(expression);
    case ExpressionKind::kFilter: return evaluate_filter(expression);
    case ExpressionKind::kTest: return evaluate_test(expression);
    case ExpressionKind::kNot: return Value::boolean(!is_true(evaluate(part(0))));
    case ExpressionKind::kNegative: return negate(run_, evaluate(part(0)));
    case ExpressionKind::kPositive: return as_number(run_, evaluate(part(0)));
    case ExpressionKind::kArithmetic: return evaluate_arithmetic(expression);
    case ExpressionKind::kAnd: {
      Value left = evaluate(part(0));
      return is_true(left) ? evaluate(part(1)) : left;
    }
    case ExpressionKind::kOr: {
      Value left = evaluate(part(0));
      return is_true(left) ? left : evaluate(part(1));
    }
    case ExpressionKind::kCompare: return evaluate_comparison(expression);
    case ExpressionKind::kConcatenate: return evaluate_concatenation(expression);
    case ExpressionKind::kConditional: return evaluate_conditional(expression);
  }
  return {};
}

Value Renderer::evaluate_name(const Expression& expression) {
  if (const Value* found = scopes_.find(expression.name)) return *found;
  if (const auto function = function_of_name_[expression.name]) {
    return Value(Value::Held(*function));
  }
  return Value::undefined(
      concat("uses the variable ", shown(program_.names[expression.name]), ", which is not set"));
}

Value Renderer::evaluate_items(const Expression& expression, Shape shape) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const auto& part : expression.parts) items.push_back(evaluate(*part));
  return Value::sequence(run_, shape, std::move(items));
}

Value Renderer::evaluate_dict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    dict.set(run_, key, evaluate(*expression.parts[i + 1]));
  }
  return Value::dict(run_, std::move(dict));
}

Value Renderer::evaluate_attribute(const Expression& expression) {
  const Value of = evaluate(*expression.parts[0]);
  run_.set_line(expression.line);
  if (const auto* loop = std::get_if<LoopHandle>(&of.held())) {
    return loop_attribute(*loop, expression.constant);
  }
  return attribute(run_, of, expression.constant);
}

Value Renderer::evaluate_item(const Expression& expression) {
  const Value of = evaluate(*expression.parts[0]);
  const Value key = evaluate(*expression.parts[1]);
  run_.set_line(expression.line);
  const auto* loop = std::get_if<LoopHandle>(&of.held());
  return loop && key.as_text() ? loop_attribute(*loop, key) : item(run_, of, key);
}

Value Renderer::evaluate_slice(const Expression& expression) {
  const auto bound = [&](size_t index) {
    const auto& part = expression.parts[index];
    return part ? evaluate(*part) : Value::none();
  };
  const Value of = evaluate(*expression.parts[0]);
  const Value begin = bound(1), end = bound(2), step = bound(3);
  run_.set_line(expression.line);
  return slice(run_, of, begin, end, step);
}

CallArguments Renderer::evaluate_arguments(const ArgumentSyntax& syntax) {
  CallArguments arguments;
  for (const auto& argument : syntax.positional)
    arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : syntax.named) {
    arguments.named.emplace_back(name, evaluate(*argument));
  }
  if (syntax.all_positional) {
    for (Value& item : items_of(run_, evaluate(*syntax.all_positional))) {
      arguments.positional.push_back(std::move(item));
    }
  }
  if (!syntax.all_named) return arguments;
  const Value all = evaluate(*syntax.all_named);
  const Dict* dict = all.as_dict();
  if (!dict) run_.fail("gives ", kind_of(all), " behind ** in a call; give a dict");
  for (const auto& [key, value] : dict->items()) {
    const Text* name = key.as_text();
    if (!name) run_.fail("gives an argument whose name is ", kind_of(key));
    run_.charge(arguments.named.size() * (1 + name->bytes.size() / kBytesPerStep));
    const bool is_new = std::ranges::none_of(
        arguments.named, [&](const auto& other) { return other.first == name->bytes; });
    if (!is_new) run_.fail("gives the argument ", shown(name->bytes), " twice");
    arguments.named.emplace_back(name->bytes, value);
  }
  return arguments;
}

Value Renderer::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.parts[0]);
  CallArguments arguments = evaluate_arguments(expression.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  run_.set_line(expression.line);
  return call(callee, arguments);
}

Value Renderer::evaluate_filter(const Expression& expression) {
  const Value input = expression.parts[0] ? evaluate(*expression.parts[0]) : *block_text_;
  const CallArguments arguments = evaluate_arguments(expression.arguments);
  run_.set_line(expression.line);
  return expression.filter(run_, input, arguments);
}

Value Renderer::evaluate_test(const Expression& expression) {
  const Value input = evaluate(*expression.parts[0]);
  const CallArguments arguments = evaluate_arguments(expression.arguments);
  run_.set_line(expression.line);
  return Value::boolean(expression.test(run_, input, arguments));
}

Value Renderer::evaluate_arithmetic(const Expression& expression) {
  const Value left = evaluate(*expression.parts[0]);
  const Value right = evaluate(*expression.parts[1]);
  run_.set_line(expression.line);
  return calculate(run_, expression.arithmetic, left, right);
}

Value Renderer::evaluate_comparison(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    run_.set_line(expression.line);
    if (!compare(expression.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Renderer::compare(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual: return equal(run_, left, right);
    case Comparison::kNotEqual: return !equal(run_, left, right);
    case Comparison::kIn: return contains(run_, right, left);
    case Comparison::kNotIn: return !contains(run_, right, left);
    default: break;
  }
  const auto found = order(run_, left, right);
  if (!found) return false;  // a NaN
  switch (comparison) {
    case Comparison::kLess: return *found < 0;
    case Comparison::kLessOrEqual: return *found <= 0;
    case Comparison::kGreater: return *found > 0;
    default: return *found >= 0;
  }
}

Value Renderer::evaluate_concatenation(const Expression& expression) {
  TextBuilder text(run_);
  for (const auto& part : expression.parts) append_text(run_, evaluate(*part), text);
  return text.value();
}

Value Renderer::evaluate_conditional(const Expression& expression) {
  if (is_true(evaluate(*expression.parts[0]))) return evaluate(*expression.parts[1]);
  if (expression.parts[2]) return evaluate(*expression.parts[2]);
  return Value::undefined("uses an `a if b` without else whose condition is false");
}

Value Renderer::call(const Value& callee, const CallArguments& arguments) {
  if (const auto* macro = std::get_if<MacroHandle>(&callee.held())) {
    return call_macro(*macro, arguments);
  }
  if (const auto* function = std::get_if<Function>(&callee.held())) {
    return call_function(run_, functions_, *function, arguments);
  }
  const Method* method = callee.as_method();
  if (!method) {
    require_defined(run_, callee);
    run_.fail("calls ", kind_of(callee), ", which is no function");
  }
  if (const auto* loop = std::get_if<LoopHandle>(&method->receiver.held())) {
    return living(*loop).cycled(arguments.positional);
  }
  return call_method(run_, *method, arguments);
}

Value Renderer::call_macro(const MacroHandle& handle, const CallArguments& arguments) {
  const Run::Deeper deeper(run_);
  if (!scopes_.is_alive(handle.frame, handle.serial)) {
    run_.fail("calls a macro after the end of the block that defines it; define it outside");
  }
  const Scopes::Frame frame(scopes_, handle.frame);
  Capture capture(*this);
  bind(*handle.macro, arguments);
  execute(handle.macro->body);
  return Value::text(run_, capture.take());
}

void Renderer::bind(const Macro& macro, const CallArguments& arguments) {
  const auto named = [&](const std::string& name) -> const Value* {
    const auto found = std::ranges::find(arguments.named, name, &NamedValues::value_type::first);
    return found == arguments.named.end() ? nullptr : &found->second;
  };
  bind_special(macro, arguments);
  std::vector<const Macro::Parameter*> missing;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Macro::Parameter& parameter = macro.parameters[i];
    const Value* given = named(parameter.name);
    if (i < arguments.positional.size()) {
      if (given && !macro.uses_kwargs) {
        run_.fail("gives the macro ", macro.name, " its argument ", parameter.name, " twice");
      }
      given = &arguments.positional[i];
    }
    if (!given) missing.push_back(&parameter);
    scopes_.set(parameter.id,
                given ? *given
                      : Value::undefined(concat("uses the parameter ", shown(parameter.name),
                                                ", which is not given")));
  }
  // A default may use the parameters before it.
  for (const Macro::Parameter* parameter : missing) {
    if (parameter->otherwise) scopes_.set(parameter->id, evaluate(*parameter->otherwise));
  }
}

// What is given beyond the parameters: `varargs`, `kwargs` and `caller`, or else an error.
void Renderer::bind_special(const Macro& macro, const CallArguments& arguments) {
  const size_t num_parameters = macro.parameters.size();
  std::vector<Value> rest;
  for (size_t i = num_parameters; i < arguments.positional.size(); ++i) {
    rest.push_back(arguments.positional[i]);
  }
  if (!rest.empty() && !macro.uses_varargs) {
    run_.fail("gives the macro ", macro.name, " ", arguments.positional.size(),
              " arguments; it takes at most ", num_parameters);
  }
  Dict kwargs;
  std::optional<Value> caller;
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(macro.parameters, name, &Macro::Parameter::name);
    const bool is_parameter = found != macro.parameters.end();
    const auto place = static_cast<size_t>(found - macro.parameters.begin());
    if (is_parameter && (place >= arguments.positional.size() || !macro.uses_kwargs)) continue;
    if (!is_parameter && name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      kwargs.set(run_, Value::text(run_, name), value);
    } else {
      run_.fail("gives the macro ", macro.name, " the argument ", shown(name),
                ", which it does not take");
    }
  }
  if (macro.uses_varargs) scopes_.set(*varargs_name_, Value::tuple(run_, std::move(rest)));
  if (macro.uses_kwargs) scopes_.set(*kwargs_name_, Value::dict(run_, std::move(kwargs)));
  if (macro.uses_caller) {
    scopes_.set(*caller_name_,
                caller.value_or(Value::undefined("uses caller outside of a call block")));
  }
}

Loop& Renderer::living(const LoopHandle& handle) {
  const bool alive =
      handle.index < loops_.size() && loops_[handle.index]->serial() == handle.serial;
  if (!alive) run_.fail("uses the variable loop of a loop that has ended");
  return *loops_[handle.index];
}

Value Renderer::loop_attribute(const LoopHandle& handle, const Value& name) {
  const std::string& text = name.as_text()->bytes;
  if (auto found = living(handle).attribute(text)) return *std::move(found);
  if (text == "cycle") return Value::method(Value(Value::Held(handle)), text);
  if (text == "changed") run_.fail("uses loop.changed, which is not supported");
  return Value::undefined(concat("uses loop.", shown(text), ", which there is not"));
}

}  // namespace trireme::dataset::chat
