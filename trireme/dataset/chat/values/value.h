// A value of a chat template, as Python has them: none, numbers, text, lists, dicts, and what
// templates call. Values are immutable, except the attributes of a namespace and how far an
// iterator is read. Copies share what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/dataset/chat/values/run.h"

namespace trireme::dataset::chat {

class Value;
class Dict;
struct Macro;  // of the syntax

struct Undefined {
  std::shared_ptr<const std::string> reason;  // why there is no value; may be null

  bool operator==(const Undefined&) const { return true; }
};

struct None {
  bool operator==(const None&) const { return true; }
};

struct Text {
  std::string bytes;     // well-formed UTF-8
  size_t length = 0;     // in characters
  bool escaped = false;  // by the filter `escape` or `safe`; + then escapes the other operand
};

enum class Shape {
  kList,
  kTuple,
  kRange,
  kKeys,  // of a dict, as are the next two: without an index
  kValues,
  kItems,
  kIterator  // is read once, has no length, counts as true
};

struct Sequence {
  Shape shape = Shape::kList;
  std::vector<Value> items;
  size_t depth = 1;
  mutable size_t next = 0;  // of an iterator: the first item that is not read
};

// The attributes that a template gives it are all it has. Belongs to the rendering, so that
// namespaces that hold each other are freed.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
};

// `loop` inside of a for. Dead when that loop has ended, which `serial` tells.
struct LoopHandle {
  size_t index;
  uint64_t serial;

  bool operator==(const LoopHandle&) const = default;
};

// Dead when the block that defined it has ended.
struct MacroHandle {
  const Macro* macro;
  size_t frame;
  uint64_t serial;

  bool operator==(const MacroHandle&) const = default;
};

enum class Function { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

struct Method;  // of a text, a list, a dict or a loop

class Value {
 public:
  using Held =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, Namespace*,
                   LoopHandle, MacroHandle, Function, std::shared_ptr<const Method>>;

  Value() = default;  // undefined
  explicit Value(Held held) : held_(std::move(held)) {}

  static Value none() { return Value(Held(None{})); }
  static Value boolean(bool value) { return Value(Held(value)); }
  static Value integer(int64_t value) { return Value(Held(value)); }
  static Value number(double value) { return Value(Held(value)); }
  static Value undefined(std::string reason);

  // These charge for what they make.
  // Throws: ConfigError when it is too large, or nested too deep
  static Value text(Run& run, std::string bytes, bool escaped = false);
  static Value text(Run& run, std::string_view bytes) { return text(run, std::string(bytes)); }
  static Value text(Run& run, const char* bytes) { return text(run, std::string(bytes)); }
  static Value sequence(Run& run, Shape shape, std::vector<Value> items);
  static Value list(Run& run, std::vector<Value> items) {
    return sequence(run, Shape::kList, std::move(items));
  }
  static Value tuple(Run& run, std::vector<Value> items) {
    return sequence(run, Shape::kTuple, std::move(items));
  }
  static Value dict(Run& run, Dict dict);
  static Value method(Value receiver, std::string name);

  const Held& held() const { return held_; }
  template <typename Type>
  bool is() const {
    return std::holds_alternative<Type>(held_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }

  // Null when it is something else.
  const bool* as_boolean() const { return std::get_if<bool>(&held_); }
  const Text* as_text() const { return pointee<Text>(); }
  const Sequence* as_sequence() const { return pointee<Sequence>(); }
  const Sequence* as_sequence(Shape shape) const;
  const Dict* as_dict() const { return pointee<Dict>(); }
  const Method* as_method() const { return pointee<Method>(); }
  // A boolean counts as the integer 0 or 1, as in Python.
  bool get_integer(int64_t& value) const;
  // Of an integer, a boolean or a floating-point number.
  bool get_number(double& value) const;

  // Lists and dicts in each other; 0 for what holds no other value.
  size_t depth() const;

 private:
  template <typename Type>
  const Type* pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<const Type>>(&held_);
    return pointer ? pointer->get() : nullptr;
  }

  Held held_;
};

struct Method {
  Value receiver;
  std::string name;
};

// Keeps the order in which its keys came. Keys are texts; up to 64 others are none, booleans or
// numbers, where equal numbers are one key.
class Dict {
 public:
  // Throws: ConfigError when the key cannot be one
  void set(Run& run, const Value& key, Value value);

  const Value* find(std::string_view key) const;
  // Throws: ConfigError when the key cannot be one
  const Value* find(Run& run, const Value& key) const;

  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t depth() const { return depth_; }

 private:
  size_t position(std::string_view key) const;
  size_t position_of_other(const Value& key) const;

  std::vector<std::pair<Value, Value>> items_;
  std::map<std::string_view, size_t> texts_;  // the keys that are texts
  std::vector<size_t> others_;
  size_t depth_ = 1;
};

// What messages call it: "a list", "none".
std::string_view kind_of(const Value& value);

}  // namespace trireme::dataset::chat
