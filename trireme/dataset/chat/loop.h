// A loop that runs: its items, of which those that fail its condition are left out, and what `loop`
// says about it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/dataset/chat/syntax/syntax.h"
#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

class Renderer;

class Loop {
 public:
  // `frame` is the block that the loop stands in. `renderer` and `statement` must outlive this.
  Loop(Renderer& renderer, const Statement& statement, size_t frame, uint64_t serial,
       std::vector<Value> items)
      : renderer_(renderer),
        statement_(statement),
        frame_(frame),
        serial_(serial),
        items_(std::move(items)),
        filters_(statement.expressions[1] != nullptr) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  uint64_t serial() const { return serial_; }

  // Goes to the next item. False: there is none.
  bool advance();
  const Value& current() const { return current_; }

  // `loop.name`; nothing when there is no such attribute. Asking for what comes later tests the
  // items there, as Jinja does.
  std::optional<Value> attribute(std::string_view name);
  // loop.cycle(...).
  const Value& cycled(const std::vector<Value>& values) const;

 private:
  // The next item that passes the condition, taken from the items.
  std::optional<Value> take_passing();
  bool passes(const Value& item);
  const std::optional<Value>& peek();
  int64_t length();

  Renderer& renderer_;
  const Statement& statement_;
  size_t frame_;
  uint64_t serial_;
  std::vector<Value> items_;
  bool filters_;
  size_t next_ = 0;  // in items_
  int64_t index_ = -1;
  Value current_;
  Value previous_;
  std::optional<Value> after_;  // what peek() took
  bool has_peeked_ = false;
  std::optional<int64_t> length_;
};

}  // namespace trireme::dataset::chat
