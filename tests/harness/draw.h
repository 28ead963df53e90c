// Random numbers of a test that is the same each time.
#pragma once

#include <concepts>
#include <cstdint>
#include <random>

namespace trireme::harness {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  template <std::integral Integer>
  Integer below(Integer limit) {
    return static_cast<Integer>(engine_() % static_cast<uint64_t>(limit));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace trireme::harness
