// Python's pickles: their values, asked for by kind and range, and writing them. Nothing of a
// pickle is run (unpickler.h).
// Source: Python's pickletools.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/checkpoint/foreign/unpickler.h"

namespace trireme::checkpoint {

class Pickle;

// A value of a Pickle, which must outlive it. Values may contain each other in circles, so who
// follows them bounds the depth, and what many values share is bounded here.
class PickleValue {
 public:
  PickleKind kind() const { return node().kind; }

  // Throws: CheckpointError when this has another kind or is outside the range; so do all others
  int64_t integer(int64_t minimum, int64_t maximum = std::numeric_limits<int64_t>::max()) const;
  std::string_view text() const;
  // A string that may be stored and quoted (base/shown.h), in well-formed UTF-8.
  std::string word() const;
  // The items of a tuple or a list. items(count) also requires that there are `count`.
  std::vector<PickleValue> items() const;
  std::vector<PickleValue> items(size_t count) const;
  std::vector<int64_t> integers(size_t max_count, int64_t minimum) const;
  // The members of a dict.
  std::vector<std::pair<PickleValue, PickleValue>> members() const;

  // The name of a global, or that a record calls; "" for other kinds.
  std::string_view global() const;
  // The arguments of a record's call, at most 64 and at least `min_count`.
  std::vector<PickleValue> arguments(size_t min_count) const;
  // The state that a record's object got.
  std::optional<PickleValue> state() const;
  // A member of the dict that is the state, of at most 64 members. find_attribute() returns nothing
  // when there is none.
  PickleValue attribute(std::string_view name) const;
  std::optional<PickleValue> find_attribute(std::string_view name) const;
  // The target of a persistent reference.
  PickleValue reference() const;

  // Throws: CheckpointError: "SOURCE: byte 17: a list; expected `expected`"
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  friend class Pickle;
  PickleValue(const Pickle* pickle, uint32_t index) : pickle_(pickle), index_(index) {}
  PickleValue at(uint32_t index) const { return {pickle_, index}; }
  const PickleNode& node() const;
  const std::vector<uint32_t>& indices(PickleKind kind) const;

  const Pickle* pickle_;
  uint32_t index_;
};

class Pickle {
 public:
  // Throws: as unpickle()
  Pickle(std::string bytes, std::span<const std::string_view> globals, std::string source)
      : source_(std::move(source)),
        bytes_(std::move(bytes)),
        nodes_(unpickle(bytes_, globals, source_)) {}
  // Values refer to it.
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  PickleValue root() const { return {this, nodes_.root}; }

 private:
  friend class PickleValue;

  std::string source_;
  std::string bytes_;
  PickleNodes nodes_;
};

// Writes pickles, protocol 2. Each call appends what it names to a stack that Python's unpickler
// keeps: append and build take what they need from there.
class Pickler {
 public:
  Pickler() = default;

  Pickler& none() { return code('N'); }
  Pickler& boolean(bool value) { return code(value ? '\x88' : '\x89'); }
  Pickler& integer(int64_t value);
  Pickler& text(std::string_view value);
  // A tuple of integers.
  Pickler& integers(std::span<const int64_t> values);
  // module: "torch"; name: "float32". Neither has a line's end.
  Pickler& global(std::string_view module, std::string_view name);

  // Starts a group, which ends with tuple() or set_items().
  Pickler& mark() { return code('('); }
  Pickler& tuple() { return code('t'); }
  Pickler& empty_tuple() { return code(')'); }
  Pickler& empty_list() { return code(']'); }
  Pickler& append() { return code('a'); }
  Pickler& empty_dict() { return code('}'); }
  Pickler& set_items() { return code('u'); }  // keys and values in turn

  Pickler& call() { return code('R'); }           // of a global and a tuple
  Pickler& new_object() { return code('\x81'); }  // of a global and a tuple
  Pickler& set_state() { return code('b'); }      // of an object and its state
  Pickler& persistent() { return code('Q'); }

  // The whole pickle. Call once.
  std::string finish() { return std::move(code('.').bytes_); }

 private:
  Pickler& code(char opcode) {
    bytes_.push_back(opcode);
    return *this;
  }
  template <typename T>
  Pickler& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }

  std::string bytes_{"\x80\x02"};
};

}  // namespace trireme::checkpoint
