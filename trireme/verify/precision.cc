#include "trireme/verify/precision.h"

#include <cmath>

namespace trireme::verify {

Finding judge(const Difference& fp32, const Difference& fp64) {
  if (fp64.absolute == 0 && fp32.absolute == 0) return Finding::kSame;
  // One side has a value that is not finite where the other has one, in fp32 alone.
  if (std::isinf(fp32.absolute) && !std::isinf(fp64.absolute)) return Finding::kUndecided;
  if (fp64.absolute == 0 || fp64.relative <= kRoundingOfFp64) return Finding::kRounding;
  if (!(fp64.absolute < kLeastOfBug * fp32.absolute)) return Finding::kBug;
  return fp64.absolute <= kMostOfRounding * fp32.absolute ? Finding::kRounding
                                                          : Finding::kUndecided;
}

Finding judge_by_bound(const Difference& found, const Difference& bound) {
  if (found.absolute == 0) return Finding::kSame;
  if (!std::isfinite(found.absolute)) return Finding::kBug;
  // Where the perturbed runs overflow, they say nothing.
  if (!std::isfinite(bound.absolute)) return Finding::kUndecided;
  if (found.absolute <= kMostOverBound * bound.absolute) return Finding::kRounding;
  return found.absolute > kLeastOverBound * bound.absolute ? Finding::kBug : Finding::kUndecided;
}

}  // namespace trireme::verify
