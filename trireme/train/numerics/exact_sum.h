// A sum of doubles without rounding, so that it does not depend on the order of its terms. Parts of
// a sum that were added on different ranks are merged limb by limb, as whole numbers.
// Source: Kulisch & Miranker 1986, "The arithmetic of the digital computer: a new approach"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::train::inline internal {

class ExactSum {
 public:
  // 32 bits each, from 2^-1152 on; the last one counts the terms that were not finite.
  static constexpr size_t kNumLimbs = 71;

  void add(double term);
  // The limbs may be added to those of another sum. At most 2^30 sums may be merged.
  std::span<const int64_t> limbs();
  void add(std::span<const int64_t> limbs);

  // The nearest double, or one next to it. NaN if a term was not finite.
  double value();

 private:
  void carry();

  std::array<int64_t, kNumLimbs> limbs_{};
  int64_t num_added_ = 0;  // since the last carry
};

}  // namespace trireme::train::inline internal
