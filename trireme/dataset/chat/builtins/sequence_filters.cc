#include <algorithm>

#include "trireme/dataset/chat/builtins/filters.h"
#include "trireme/dataset/chat/values/characters.h"
#include "trireme/dataset/chat/values/subscript.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

// Jinja's filters are lazy where Python's generators are; here they are done at once, which differs
// only where one fails that nobody reads.

namespace {

Value iterator(Run& run, std::vector<Value> items) {
  return Value::sequence(run, Shape::kIterator, std::move(items));
}

CallArguments without_first(const CallArguments& arguments, size_t count) {
  CallArguments rest{.named = arguments.named};
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  return rest;
}

struct Selection {
  const char* callee;
  bool by_attribute;
  bool keeps;  // those that pass the test, or those that do not
};

Value selected(Run& run, const Value& input, const CallArguments& arguments,
               const Selection& selection) {
  if (!is_true(input)) return iterator(run, {});
  const size_t offset = selection.by_attribute ? 1 : 0;
  if (arguments.positional.size() < offset) {
    run.fail(selection.callee, " is not given the name of an attribute");
  }
  const bool has_test = arguments.positional.size() > offset;
  const CallArguments rest = has_test ? without_first(arguments, offset + 1) : CallArguments{};
  std::vector<Value> items;
  for (Value& item : items_of(run, input)) {
    const Value tested =
        selection.by_attribute ? item_by_path(run, item, arguments.positional[0]) : item;
    const bool passes =
        has_test ? call_test(run, arguments.positional[offset], tested, rest) : is_true(tested);
    if (passes == selection.keeps) items.push_back(std::move(item));
  }
  return iterator(run, std::move(items));
}

// A pair of each member of a dict.
std::vector<Value> members_of(Run& run, const Dict& dict) {
  std::vector<Value> members;
  for (const auto& [key, value] : dict.items()) members.push_back(Value::tuple(run, {key, value}));
  return members;
}

}  // namespace

Value filter_first(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter first", arguments);
  if (const Sequence* sequence = input.as_sequence()) {
    const bool once = sequence->shape == Shape::kIterator;
    const size_t index = once ? sequence->next : 0;
    if (index >= sequence->items.size()) {
      return Value::undefined("uses the first item of a list that is empty");
    }
    if (once) ++sequence->next;
    return sequence->items[index];
  }
  const Text* text = input.as_text();
  if (text && text->length > 0) return item(run, input, Value::integer(0));
  std::vector<Value> items = items_of(run, input);
  if (items.empty()) return Value::undefined("uses the first item of what has none");
  return items.front();
}

Value filter_items(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter items", arguments);
  if (input.is_undefined()) return iterator(run, {});
  const Dict* dict = input.as_dict();
  if (!dict) run.fail("the filter items is given ", kind_of(input), "; give it a dict");
  return iterator(run, members_of(run, *dict));
}

Value filter_join(Run& run, const Value& input, const CallArguments& arguments) {
  const Parameters parameters(run, "the filter join", arguments, {"d", "attribute"});
  const std::string separator = parameters.has(0) ? text_of(run, parameters.value(0)) : "";
  const Value path = parameters.value_or(1, Value::none());
  TextBuilder result(run);
  bool first = true;
  for (const Value& item : items_of(run, input)) {
    if (!first) result.add(separator);
    first = false;
    append_text(run, item_by_path(run, item, path), result);
  }
  return result.value();
}

Value filter_last(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter last", arguments);
  if (input.as_sequence(Shape::kIterator)) {
    run.fail("uses the last item of an iterator; make a list of it with the filter list");
  }
  const Text* text = input.as_text();
  if (text && text->length > 0) return item(run, input, Value::integer(-1));
  if (const Sequence* sequence = input.as_sequence(); sequence && !sequence->items.empty()) {
    return sequence->items.back();
  }
  std::vector<Value> items = items_of(run, input);
  if (items.empty()) return Value::undefined("uses the last item of what has none");
  return items.back();
}

Value filter_length(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter length", arguments);
  const auto length = length_of(input);
  if (!length) {
    run.fail("takes the length of ", kind_of(input), ", which has none",
             input.as_sequence() ? "; make a list of it with the filter list" : "");
  }
  return Value::integer(static_cast<int64_t>(*length));
}

Value filter_list(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter list", arguments);
  return Value::list(run, items_of(run, input));
}

Value filter_map(Run& run, const Value& input, const CallArguments& arguments) {
  if (!is_true(input)) return iterator(run, {});
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const Parameters parameters(run, "the filter map", {.named = arguments.named},
                                {"attribute", "default"}, 1);
    const Value otherwise = parameters.value_or(1, Value::none());
    for (const Value& item : items_of(run, input)) {
      items.push_back(item_by_path(run, item, parameters.value(0), &otherwise));
    }
  } else {
    const CallArguments rest = without_first(arguments, 1);
    for (const Value& item : items_of(run, input)) {
      items.push_back(call_filter(run, arguments.positional[0], item, rest));
    }
  }
  return iterator(run, std::move(items));
}

Value filter_reject(Run& run, const Value& input, const CallArguments& arguments) {
  return selected(run, input, arguments,
                  {.callee = "the filter reject", .by_attribute = false, .keeps = false});
}

Value filter_rejectattr(Run& run, const Value& input, const CallArguments& arguments) {
  return selected(run, input, arguments,
                  {.callee = "the filter rejectattr", .by_attribute = true, .keeps = false});
}

Value filter_reverse(Run& run, const Value& input, const CallArguments& arguments) {
  take_none(run, "the filter reverse", arguments);
  if (const Text* text = input.as_text()) {
    if (text->escaped) run.fail("reverses an escaped text; reverse it, then escape it");
    return slice(run, input, Value::none(), Value::none(), Value::integer(-1));
  }
  const bool is_iterator = input.as_sequence(Shape::kIterator) != nullptr;
  std::vector<Value> items = items_of(run, input);
  std::ranges::reverse(items);
  return is_iterator ? Value::list(run, std::move(items)) : iterator(run, std::move(items));
}

Value filter_select(Run& run, const Value& input, const CallArguments& arguments) {
  return selected(run, input, arguments,
                  {.callee = "the filter select", .by_attribute = false, .keeps = true});
}

Value filter_selectattr(Run& run, const Value& input, const CallArguments& arguments) {
  return selected(run, input, arguments,
                  {.callee = "the filter selectattr", .by_attribute = true, .keeps = true});
}

}  // namespace trireme::dataset::chat
