// Targeted damage: changes bytes, numbers and structure of a valid input to what its reader may not
// expect. Depends only on the state of the Random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trireme::hostile {

// splitmix64. The numbers are the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // A number in [0, count). `count` is at least 1.
  size_t below(size_t count) { return static_cast<size_t>(next() % count); }
  bool one_in(size_t count) { return below(count) == 0; }
  template <typename Container>
  auto& pick(Container& items) {
    return items[below(std::size(items))];
  }

 private:
  uint64_t state_;
};

// A whole number around 0, around a power of two, at an end of a width, or of random width.
uint64_t edge_number(Random& random);

// Applies a few of these: changes a bit, a byte or a number of 1 to 8 bytes anywhere; removes,
// repeats, inserts or moves bytes; cuts off the end. Keeps `bytes` below a few megabytes.
void damage_bytes(std::string& bytes, Random& random);

// Writes an edge number over `width` bytes at `offset`, in little-endian order.
void put_edge(std::string& bytes, size_t offset, size_t width, Random& random);

// Applies a few of these: replaces a number; inserts a word, or brackets or keys nested thousands
// deep; removes, repeats or moves a line; damages bytes as damage_bytes() does.
void damage_text(std::string& text, Random& random);

// The JSON text of `whole` after a few changes: members, elements and values are removed, repeated,
// exchanged, renamed, or replaced by another type, size or number at the end of a range. Keys may
// occur twice, arrays may have thousands of elements, and nesting may be 100,000 deep. `indent` is
// that of dump().
std::string damaged_json(const nlohmann::ordered_json& whole, int indent, Random& random);

}  // namespace trireme::hostile
