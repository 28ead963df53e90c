// Damage with a purpose: bytes, numbers and structure of a valid input changed to what its reader
// may not expect. Everything follows from the state of the Random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trireme::hostile {

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // In [0, count); count is at least 1.
  size_t below(size_t count) { return static_cast<size_t>(next() % count); }
  bool one_in(size_t count) { return below(count) == 0; }
  template <typename Container>
  auto& pick(Container& items) {
    return items[below(std::size(items))];
  }

 private:
  uint64_t state_;
};

// Whole numbers at the ends of every width, around 0 and around powers of two.
uint64_t edge_number(Random& random);

// A few of: a bit, a byte, a number of 1 to 8 bytes at any place; bytes removed, repeated, inserted
// or moved; the end cut off. Keeps `bytes` below a few megabytes.
void damage_bytes(std::string& bytes, Random& random);

// Writes an edge number over `width` bytes at `offset`, little-endian.
void put_edge(std::string& bytes, size_t offset, size_t width, Random& random);

// Another number, word or bracket in place of one of the text's; a line removed, repeated or moved;
// thousands of brackets.
void damage_text(std::string& text, Random& random);

// The JSON text of `value` with a few members, elements and values removed, repeated, exchanged,
// renamed, of another type, of another size or at the end of a range; keys twice; arrays of
// thousands; nesting of 100,000. `indent` as for dump().
std::string damaged_json(const nlohmann::ordered_json& whole, int indent, Random& random);

}  // namespace trireme::hostile
