// How often a row was used of late: at every `halve_steps`-th step all uses so far are halved. With
// e(k) = floor(k / halve_steps), or 0 if it is 0, a row that is used in step k has
//   u = 1 + u' 2^(e(k') - e(k))
// uses, of which it had u' after its last use, in step k'. At a later step n they are
// u 2^(e(k) - e(n)), so the order of two rows is that of their u 2^e(k): it stays until one of them
// is used, and halving touches no row.
// Sources: halving: Einziger et al. 2017, arXiv:1512.00727 (TinyLFU), section 3.3; the order: Lee
//          et al. 2001, "LRFU: a spectrum of policies that subsumes the least recently used and
//          least frequently used policies", property 3
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace trireme::parallel::inline internal {

inline constexpr float kMostUses = 1 << 24;  // one more has no effect in fp32

constexpr int64_t halvings(int64_t step, int64_t halve_steps) {
  return halve_steps > 0 ? step / halve_steps : 0;
}

// u after a use in step `step`. last_use: k'
inline float uses_after(float uses, int64_t last_use, int64_t step, int64_t halve_steps) {
  constexpr int64_t kNothingLeft = 64;
  const int64_t times = halvings(step, halve_steps) - halvings(last_use, halve_steps);
  return 1 + std::ldexp(uses, -static_cast<int>(std::clamp<int64_t>(times, 0, kNothingLeft)));
}

// A number that rises with u 2^e(k), for u in [1, kMostUses]. The bits of positive floating-point
// numbers rise with them, and the exponent is in the upper ones.
inline int64_t use_weight(float uses, int64_t last_use, int64_t halve_steps) {
  constexpr int kMantissaBits = 23;
  return std::bit_cast<int32_t>(uses) + (halvings(last_use, halve_steps) << kMantissaBits);
}

}  // namespace trireme::parallel::inline internal
