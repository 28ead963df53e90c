#include "trireme/dataset/chat/builtins/methods.h"

#include "trireme/dataset/chat/values/value_order.h"

namespace trireme::dataset::chat {

namespace {

[[noreturn]] void refuse_method(Run& run, const Value& receiver, const std::string& name) {
  run.fail("calls the method ", name, " of ", kind_of(receiver), ", which is not supported");
}

Value view_of(Run& run, const Dict& dict, Shape shape) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items()) {
    if (shape == Shape::kKeys) items.push_back(key);
    if (shape == Shape::kValues) items.push_back(value);
    if (shape == Shape::kItems) items.push_back(Value::tuple(run, {key, value}));
  }
  return Value::sequence(run, shape, std::move(items));
}

Value call_dict_method(Run& run, const Method& method, const Dict& dict,
                       const CallArguments& arguments) {
  const std::string callee = "the method " + method.name + " of a dict";
  if (method.name == "get") {
    const Parameters parameters(run, callee, arguments, {"key", "default"}, 1);
    const Value* found = dict.find(run, parameters.value(0));
    return found ? *found : parameters.value_or(1, Value::none());
  }
  const Parameters none(run, callee, arguments, {});
  if (method.name == "keys") return view_of(run, dict, Shape::kKeys);
  if (method.name == "values") return view_of(run, dict, Shape::kValues);
  if (method.name == "items") return view_of(run, dict, Shape::kItems);
  if (method.name == "copy") return method.receiver;
  refuse_method(run, method.receiver, method.name);
}

Value call_list_method(Run& run, const Method& method, const Sequence& list,
                       const CallArguments& arguments) {
  const std::string callee = "the method " + method.name + " of a list";
  if (method.name == "copy") {
    const Parameters none(run, callee, arguments, {});
    return method.receiver;
  }
  const Parameters parameters(run, callee, arguments, {"value"}, 1);
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!equal(run, list.items[i], parameters.value(0))) continue;
    if (method.name == "index") return Value::integer(static_cast<int64_t>(i));
    ++count;
  }
  if (method.name == "count") return Value::integer(count);
  if (method.name == "index") run.fail(callee, " finds no such item; ask with `in` first");
  refuse_method(run, method.receiver, method.name);
}

}  // namespace

Value call_method(Run& run, const Method& method, const CallArguments& arguments) {
  if (const Text* text = method.receiver.as_text()) {
    return call_text_method(run, *text, method.name, arguments);
  }
  if (const Dict* dict = method.receiver.as_dict()) {
    return call_dict_method(run, method, *dict, arguments);
  }
  if (const Sequence* list = method.receiver.as_sequence()) {
    return call_list_method(run, method, *list, arguments);
  }
  refuse_method(run, method.receiver, method.name);
}

}  // namespace trireme::dataset::chat
