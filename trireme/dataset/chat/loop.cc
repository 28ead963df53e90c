#include "trireme/dataset/chat/loop.h"

#include "trireme/dataset/chat/renderer.h"
#include "trireme/dataset/chat/values/value_order.h"

namespace trireme::dataset::chat {

bool Loop::advance() {
  std::optional<Value> item = has_peeked_ ? std::move(after_) : take_passing();
  has_peeked_ = false;
  after_.reset();
  if (!item) return false;
  ++index_;
  previous_ = std::move(current_);
  current_ = *std::move(item);
  return true;
}

std::optional<Value> Loop::take_passing() {
  while (next_ < items_.size()) {
    renderer_.run_.charge(1);
    Value& item = items_[next_++];
    if (!filters_ || passes(item)) return item;
  }
  return std::nullopt;
}

bool Loop::passes(const Value& item) {
  const Scopes::Frame frame(renderer_.scopes_, frame_);
  renderer_.assign(statement_.target, item);
  return is_true(renderer_.evaluate(*statement_.expressions[1]));
}

const std::optional<Value>& Loop::peek() {
  if (!has_peeked_) after_ = take_passing();
  has_peeked_ = true;
  return after_;
}

int64_t Loop::length() {
  if (length_) return *length_;
  if (filters_) {
    std::vector<Value> rest;
    while (auto item = take_passing()) rest.push_back(*std::move(item));
    items_ = std::move(rest);
    next_ = 0;
    filters_ = false;
    length_ = std::ssize(items_) + index_ + 1 + (after_ ? 1 : 0);
  } else {
    length_ = std::ssize(items_);
  }
  return *length_;
}

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index_);
  if (name == "revindex0") return Value::integer(length() - index_ - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") {
    return index_ == 0 ? Value::undefined("uses loop.previtem in the first turn of a loop")
                       : previous_;
  }
  if (name == "nextitem") {
    return peek().value_or(Value::undefined("uses loop.nextitem in the last turn of a loop"));
  }
  return std::nullopt;
}

const Value& Loop::cycled(const std::vector<Value>& values) const {
  if (values.empty()) renderer_.run_.fail("calls loop.cycle without values");
  return values[static_cast<size_t>(index_) % values.size()];
}

}  // namespace trireme::dataset::chat
