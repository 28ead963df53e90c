#include "trireme/dataset/chat/values/value.h"

#include <algorithm>

#include "trireme/dataset/chat/values/characters.h"

namespace trireme::dataset::chat {

// A deep value would end in the stack when it is compared, printed or destroyed, so each knows its
// depth. Namespaces do not count: nothing goes through them.

namespace {

constexpr size_t kMaxOtherKeys = 64;

void check_depth(Run& run, size_t depth) {
  if (depth > kMaxValueDepth) {
    run.fail("nests lists and dicts more than ", kMaxValueDepth, " deep; make flatter ones");
  }
}

}  // namespace

const Value* Namespace::find(std::string_view name) const {
  const auto found = std::ranges::find(
      attributes, name, [](const auto& attribute) -> std::string_view { return attribute.first; });
  return found == attributes.end() ? nullptr : &found->second;
}

Value Value::undefined(std::string reason) {
  return Value(Held(Undefined{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::text(Run& run, std::string bytes, bool escaped) {
  run.charge_text(bytes.size());
  const size_t length = count_characters(bytes);
  return Value(Held(std::make_shared<const Text>(
      Text{.bytes = std::move(bytes), .length = length, .escaped = escaped})));
}

Value Value::sequence(Run& run, Shape shape, std::vector<Value> items) {
  run.charge(items.size());
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) made->depth = std::max(made->depth, item.depth() + 1);
  check_depth(run, made->depth);
  made->shape = shape;
  made->items = std::move(items);
  return Value(Held(std::shared_ptr<const Sequence>(std::move(made))));
}

Value Value::dict(Run& run, Dict dict) {
  run.charge(dict.items().size());
  check_depth(run, dict.depth());
  return Value(Held(std::make_shared<const Dict>(std::move(dict))));
}

Value Value::method(Value receiver, std::string name) {
  return Value(Held(std::make_shared<const Method>(Method{std::move(receiver), std::move(name)})));
}

const Sequence* Value::as_sequence(Shape shape) const {
  const Sequence* sequence = as_sequence();
  return sequence && sequence->shape == shape ? sequence : nullptr;
}

bool Value::get_integer(int64_t& value) const {
  if (const auto* integer = std::get_if<int64_t>(&held_)) {
    value = *integer;
  } else if (const bool* boolean = as_boolean()) {
    value = *boolean ? 1 : 0;
  } else {
    return false;
  }
  return true;
}

bool Value::get_number(double& value) const {
  int64_t integer = 0;
  if (const auto* number = std::get_if<double>(&held_)) {
    value = *number;
  } else if (get_integer(integer)) {
    value = static_cast<double>(integer);
  } else {
    return false;
  }
  return true;
}

size_t Value::depth() const {
  if (const Sequence* sequence = as_sequence()) return sequence->depth;
  if (const Dict* dict = as_dict()) return dict->depth();
  if (const Method* method = as_method()) return method->receiver.depth() + 1;
  return 0;
}

void Dict::set(Run& run, const Value& key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  const Text* text = key.as_text();
  double number = 0;
  if (!text && !key.is_none() && !key.get_number(number)) {
    run.fail("uses ", kind_of(key), " as the key of a dict; use a text or a number");
  }
  if (text) run.charge_bytes(text->bytes.size());
  const size_t found = text ? position(text->bytes) : position_of_other(key);
  if (found < items_.size()) {
    items_[found].second = std::move(value);
    return;
  }
  if (text) {
    texts_.emplace(text->bytes, items_.size());
  } else {
    if (others_.size() >= kMaxOtherKeys) {
      run.fail("makes a dict of more than ", kMaxOtherKeys,
               " keys that are not texts; use texts as keys");
    }
    others_.push_back(items_.size());
  }
  items_.emplace_back(key, std::move(value));
}

const Value* Dict::find(std::string_view key) const {
  const size_t found = position(key);
  return found < items_.size() ? &items_[found].second : nullptr;
}

const Value* Dict::find(Run& run, const Value& key) const {
  if (const Text* text = key.as_text()) {
    run.charge_bytes(text->bytes.size());
    return find(text->bytes);
  }
  if (key.as_dict() || key.as_sequence(Shape::kList)) {
    run.fail("looks for ", kind_of(key), " among the keys of a dict; use a text or a number");
  }
  const size_t found = position_of_other(key);
  return found < items_.size() ? &items_[found].second : nullptr;
}

size_t Dict::position(std::string_view key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? items_.size() : found->second;
}

size_t Dict::position_of_other(const Value& key) const {
  double wanted = 0;
  const bool is_number = key.get_number(wanted);
  for (const size_t index : others_) {
    const Value& other = items_[index].first;
    double number = 0;
    const bool same = other.get_number(number) ? is_number && number == wanted : key.is_none();
    if (same) return index;
  }
  return items_.size();
}

std::string_view kind_of(const Value& value) {
  struct Name {
    std::string_view operator()(const Undefined&) const { return "an undefined value"; }
    std::string_view operator()(const None&) const { return "none"; }
    std::string_view operator()(bool) const { return "a boolean"; }
    std::string_view operator()(int64_t) const { return "an integer"; }
    std::string_view operator()(double) const { return "a number"; }
    std::string_view operator()(const std::shared_ptr<const Text>&) const { return "a text"; }
    std::string_view operator()(const std::shared_ptr<const Sequence>& sequence) const {
      switch (sequence->shape) {
        case Shape::kList: return "a list";
        case Shape::kTuple: return "a tuple";
        case Shape::kRange: return "a range";
        case Shape::kIterator: return "an iterator";
        default: return "a view of a dict";
      }
    }
    std::string_view operator()(const std::shared_ptr<const Dict>&) const { return "a dict"; }
    std::string_view operator()(const Namespace*) const { return "a namespace"; }
    std::string_view operator()(const LoopHandle&) const { return "a loop"; }
    std::string_view operator()(const MacroHandle&) const { return "a macro"; }
    std::string_view operator()(const Function&) const { return "a function"; }
    std::string_view operator()(const std::shared_ptr<const Method>&) const { return "a method"; }
  };
  return std::visit(Name{}, value.held());
}

}  // namespace trireme::dataset::chat
