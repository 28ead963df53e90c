// The tests behind `is`, by their names.
#include <algorithm>

#include "trireme/base/choice.h"
#include "trireme/dataset/chat/builtins/call.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/letter_case.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

using Arguments = CallArguments;

template <bool (*Property)(const Value&)>
bool test_of(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters none(run, "a test that asks for a property", arguments, {});
  return Property(input);
}

const Value& other_of(const Parameters& parameters) { return parameters.value(0); }

template <auto Accepts>
bool test_order(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters parameters(run, "a test that compares", arguments, {"other"}, 1);
  const auto found = order(run, input, other_of(parameters));
  return found && Accepts(*found);
}

bool test_equal(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters parameters(run, "the test eq", arguments, {"other"}, 1);
  return equal(run, input, other_of(parameters));
}

bool test_not_equal(Run& run, const Value& input, const Arguments& arguments) {
  return !test_equal(run, input, arguments);
}

bool test_in(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters parameters(run, "the test in", arguments, {"seq"}, 1);
  return contains(run, parameters.value(0), input);
}

// Whether both are one object: a literal, or one value in two variables.
bool test_sameas(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters parameters(run, "the test sameas", arguments, {"other"}, 1);
  const Value& other = other_of(parameters);
  if (input.held().index() != other.held().index()) return false;
  if (input.as_text() || input.as_dict() || input.as_sequence()) {
    return input.as_text() == other.as_text() && input.as_dict() == other.as_dict() &&
           input.as_sequence() == other.as_sequence();
  }
  return equal(run, input, other);
}

bool remainder_is(Run& run, const Value& input, const Value& divisor, int64_t wanted) {
  return equal(run, calculate(run, Arithmetic::kModulo, input, divisor), Value::integer(wanted));
}

bool test_divisible(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters parameters(run, "the test divisibleby", arguments, {"num"}, 1);
  return remainder_is(run, input, parameters.value(0), 0);
}

bool test_odd(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters none(run, "the test odd", arguments, {});
  return remainder_is(run, input, Value::integer(2), 1);
}

bool test_even(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters none(run, "the test even", arguments, {});
  return remainder_is(run, input, Value::integer(2), 0);
}

template <bool (*Property)(std::string_view)>
bool test_case(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters none(run, "a test of case", arguments, {});
  const std::string text = text_of(run, input);
  run.charge_characters(text.size());
  return Property(text);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.as_boolean() != nullptr; }
bool is_true_itself(const Value& value) { return value.as_boolean() && *value.as_boolean(); }
bool is_false_itself(const Value& value) { return value.as_boolean() && !*value.as_boolean(); }
bool is_integer(const Value& value) { return value.is<int64_t>(); }
bool is_float(const Value& value) { return value.is<double>(); }
bool is_any_number(const Value& value) {
  return value.is<int64_t>() || value.is<double>() || value.is<bool>();
}
bool is_text(const Value& value) { return value.as_text() != nullptr; }
bool is_mapping(const Value& value) { return value.as_dict() != nullptr; }

// Has a length and items by index, which Jinja says of an undefined value too.
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  const bool indexed =
      sequence && (sequence->shape == Shape::kList || sequence->shape == Shape::kTuple ||
                   sequence->shape == Shape::kRange);
  return value.is_undefined() || value.as_text() || value.as_dict() || indexed;
}

bool is_loop_or_iterable(const Value& value) {
  return is_iterable(value) || value.is<LoopHandle>();
}

bool is_callable(const Value& value) {
  return value.is_undefined() || value.is<Function>() || value.is<MacroHandle>() ||
         value.as_method() || value.is<LoopHandle>();
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr auto kBelow = [](int order) { return order < 0; };
constexpr auto kAtMost = [](int order) { return order <= 0; };
constexpr auto kAbove = [](int order) { return order > 0; };
constexpr auto kAtLeast = [](int order) { return order >= 0; };

// Those with signs are for the filters select and reject.
constexpr NamedTest kTests[] = {{"!=", test_not_equal},
                                {"<", test_order<kBelow>},
                                {"<=", test_order<kAtMost>},
                                {"==", test_equal},
                                {">", test_order<kAbove>},
                                {">=", test_order<kAtLeast>},
                                {"boolean", test_of<is_boolean>},
                                {"callable", test_of<is_callable>},
                                {"defined", test_of<is_defined>},
                                {"divisibleby", test_divisible},
                                {"eq", test_equal},
                                {"equalto", test_equal},
                                {"even", test_even},
                                {"false", test_of<is_false_itself>},
                                {"float", test_of<is_float>},
                                {"ge", test_order<kAtLeast>},
                                {"greaterthan", test_order<kAbove>},
                                {"gt", test_order<kAbove>},
                                {"in", test_in},
                                {"integer", test_of<is_integer>},
                                {"iterable", test_of<is_loop_or_iterable>},
                                {"le", test_order<kAtMost>},
                                {"lessthan", test_order<kBelow>},
                                {"lower", test_case<is_lower>},
                                {"lt", test_order<kBelow>},
                                {"mapping", test_of<is_mapping>},
                                {"ne", test_not_equal},
                                {"none", test_of<is_none>},
                                {"number", test_of<is_any_number>},
                                {"odd", test_odd},
                                {"sameas", test_sameas},
                                {"sequence", test_of<is_sequence>},
                                {"string", test_of<is_text>},
                                {"true", test_of<is_true_itself>},
                                {"undefined", test_of<is_undefined>},
                                {"upper", test_case<is_upper>}};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &NamedTest::name);
  return found == std::end(kTests) ? nullptr : found->function;
}

std::string test_names() { return trireme::joined(names_of(kTests)); }

}  // namespace trireme::dataset::chat
