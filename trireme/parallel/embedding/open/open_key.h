// Keys of an open vocabulary: its ids, mixed so that they spread evenly over the ranks. No two ids
// have the same key.
#pragma once

#include <cstdint>

namespace trireme::parallel {

// The finaliser of splitmix64, which is a bijection of 64 bits, with the top bit flipped so that
// signed keys are in the order of the unsigned mixture.
// Source: Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"
constexpr int64_t open_key(int64_t id) {
  auto z = static_cast<uint64_t>(id);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<int64_t>((z ^ (z >> 31)) ^ (uint64_t{1} << 63));
}

// The reverse.
constexpr int64_t id_of_open_key(int64_t key) {
  uint64_t z = static_cast<uint64_t>(key) ^ (uint64_t{1} << 63);
  z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642b2d24d8ec3;
  z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96de1b173f119089;
  return static_cast<int64_t>(z ^ (z >> 30) ^ (z >> 60));
}

// The key's place among 2^32, which are placed on ranks like the rows of a table. Rises with keys.
inline constexpr int kOpenPlaceBits = 32;
constexpr int64_t place_of_open_key(int64_t key) {
  return (key >> (64 - kOpenPlaceBits)) + (int64_t{1} << (kOpenPlaceBits - 1));
}

}  // namespace trireme::parallel
