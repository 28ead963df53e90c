// Tells rounding from a bug: the same computation in fp32 and in fp64. A difference that comes from
// the order of sums shrinks with the unit roundoff, by 2^-29; one that comes from a mistake stays.
#pragma once

#include "trireme/base/choice.h"

namespace trireme::verify {

enum class Finding {
  kSame,       // every bit, in both precisions
  kRounding,   // it shrinks with the precision
  kUndecided,  // it shrinks, but not as rounding does
  kBug,        // it stays
};
inline constexpr Choice<Finding> kFindings[] = {{"same", Finding::kSame},
                                                {"rounding", Finding::kRounding},
                                                {"undecided", Finding::kUndecided},
                                                {"bug", Finding::kBug}};

// What two runs differ by in one precision.
struct Difference {
  double absolute = 0;  // largest |a - b|; infinite where one side lacks a finite value
  double relative = 0;  // to the largest |value| of both
};

// Differences in fp64 of at most this are rounding, whatever they are in fp32.
inline constexpr double kRoundingOfFp64 = 1e-12;
// The share of the difference in fp32 that is left in fp64, at most for rounding and at least for a
// bug. Later steps may make rounding larger, in both precisions alike: it is 2^-29 for one sum.
inline constexpr double kMostOfRounding = 0x1p-20;
inline constexpr double kLeastOfBug = 0x1p-10;

// A value that is zero but for rounding, such as the gradient of a bias in front of a softmax,
// differs by all of it in both precisions. So shares are of the absolute difference.
Finding judge(const Difference& fp32, const Difference& fp64);

// A difference of at most so many times what a roundoff in each activation makes is rounding, and
// one of more than so many is a bug.
inline constexpr double kMostOverBound = 8;
inline constexpr double kLeastOverBound = 64;

// For what cannot run in fp64.
// found: of two runs in one precision; bound: of one of them and of itself with such roundoffs, the
// largest of several
Finding judge_by_bound(const Difference& found, const Difference& bound);

}  // namespace trireme::verify
