#include "trireme/train/numerics/exact_sum.h"

#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::train::inline internal {
namespace {

constexpr int kLimbBits = 32;
constexpr int kLowest = -1152;  // exponent of the first limb's lowest bit
constexpr int kMantissaBits = 53;
constexpr size_t kNotFinite = ExactSum::kNumLimbs - 1;
constexpr uint64_t kLimbMask = (uint64_t{1} << kLimbBits) - 1;
// Each term adds less than 2^32 to a limb.
constexpr int64_t kMaxAdded = int64_t{1} << 30;

}  // namespace

void ExactSum::add(double term) {
  if (!std::isfinite(term)) {
    ++limbs_[kNotFinite];
    return;
  }
  if (term == 0) return;
  if (++num_added_ > kMaxAdded) carry();
  int exponent = 0;
  const double fraction = std::frexp(std::abs(term), &exponent);
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, kMantissaBits));
  const int place = exponent - kMantissaBits - kLowest;
  const auto first = static_cast<size_t>(place / kLimbBits);
  const int shift = place % kLimbBits;
  const int64_t sign = term < 0 ? -1 : 1;
  const uint64_t low = (mantissa & kLimbMask) << shift;
  const uint64_t high = (mantissa >> kLimbBits) << shift;
  const uint64_t middle = (low >> kLimbBits) + (high & kLimbMask);
  limbs_[first] += sign * static_cast<int64_t>(low & kLimbMask);
  limbs_[first + 1] += sign * static_cast<int64_t>(middle & kLimbMask);
  limbs_[first + 2] += sign * static_cast<int64_t>((high >> kLimbBits) + (middle >> kLimbBits));
}

std::span<const int64_t> ExactSum::limbs() {
  carry();
  return limbs_;
}

void ExactSum::add(std::span<const int64_t> limbs) {
  TRIREME_ASSERT(limbs.size() == kNumLimbs, "a sum has ", kNumLimbs, " limbs");
  for (size_t i = 0; i < kNumLimbs; ++i) limbs_[i] += limbs[i];
  carry();
}

// Brings every limb but the highest into [0, 2^32).
void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kNotFinite; ++i) {
    const int64_t over = limbs_[i] >> kLimbBits;  // rounds down
    limbs_[i] -= over * (int64_t{1} << kLimbBits);
    limbs_[i + 1] += over;
  }
  num_added_ = 0;
}

double ExactSum::value() {
  if (limbs_[kNotFinite] != 0) return std::numeric_limits<double>::quiet_NaN();
  carry();
  // A negative sum has a negative highest limb; its magnitude is summed without cancellation.
  const bool is_negative = limbs_[kNotFinite - 1] < 0;
  ExactSum magnitude = *this;
  if (is_negative) {
    for (int64_t& limb : magnitude.limbs_) limb = -limb;
    magnitude.carry();
  }
  double sum = 0;
  for (size_t i = kNotFinite; i-- > 0;) {
    sum += std::ldexp(static_cast<double>(magnitude.limbs_[i]),
                      kLowest + kLimbBits * static_cast<int>(i));
  }
  return is_negative ? -sum : sum;
}

}  // namespace trireme::train::inline internal
