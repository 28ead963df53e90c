// The values of a pickle, asked for by kind and range. Nothing of the pickle is run (unpickler.h).
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

namespace trireme::checkpoint::inline internal {

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
  // Of a tuple or a list. items(count) also demands so many.
  std::vector<PickleValue> items() const;
  std::vector<PickleValue> items(size_t count) const;
  std::vector<int64_t> integers(size_t max_count, int64_t minimum) const;
  // Of a dict.
  std::vector<std::pair<PickleValue, PickleValue>> members() const;

  // The name of a global, or that a record calls; "" for other kinds.
  std::string_view global() const;
  // Of a record: the arguments of the call, at most 64 and at least `min_count`.
  std::vector<PickleValue> arguments(size_t min_count) const;
  // The state that a record's object got.
  std::optional<PickleValue> state() const;
  // A member of the dict that is the state, of at most 64 members. find_attribute() returns nothing
  // when there is none.
  PickleValue attribute(std::string_view name) const;
  std::optional<PickleValue> find_attribute(std::string_view name) const;
  // What a persistent reference refers to.
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

}  // namespace trireme::checkpoint::inline internal
