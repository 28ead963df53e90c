// The largest numbers that a config may contain. They exceed any sensible value, and products of
// counts still fit 64 bits: steps * global_batch, the product of the axes, the parameters of the
// largest model (config_test counts them).
#pragma once

#include <cstdint>
#include <limits>

#include "trireme/base/key.h"

namespace trireme {

inline constexpr int64_t kMaxSteps = 100'000'000'000;
inline constexpr int64_t kMaxBatch = 10'000'000;
inline constexpr int64_t kMaxRanks = 1 << 15;
inline constexpr int64_t kMaxLayers = 1 << 16;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxFfnWidth = 1 << 22;
inline constexpr int64_t kMaxExperts = 1 << 16;
inline constexpr int64_t kMaxSequence = 1 << 24;
inline constexpr int64_t kMaxVocabulary = 1 << 26;
inline constexpr int64_t kMaxImageSize = 1 << 14;
inline constexpr int64_t kMaxChannels = 1 << 10;
inline constexpr int64_t kMaxClasses = 1 << 26;
inline constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();  // TOML's largest integer
inline constexpr int64_t kMaxBuffer = int64_t{1} << 40;
inline constexpr int64_t kMaxMemory = int64_t{1} << 50;
inline constexpr int64_t kMaxSeconds = int64_t{365} * 24 * 3600;
inline constexpr double kMaxRate = 1e30;  // no size; a rate too large diverges, and the run says so
// Range of an epsilon that is added to a denominator which may be zero: at least the smallest
// normal number of fp32. Smaller ones become zero in fp32, and 0 / 0 is NaN.
inline constexpr Range kEpsilon{.minimum = 0x1p-126, .maximum = 1};
// The decay of a moving average.
inline constexpr Range kDecay{.minimum = 0, .maximum = 1, .below_maximum = true};

}  // namespace trireme
