// The precision in which a run computes, and the one in which it sums gradients.
#pragma once

#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"

namespace trireme::train {

inline constexpr Choice<c10::ScalarType> kPrecisions[] = {{"fp64", c10::ScalarType::Double},
                                                          {"fp32", c10::ScalarType::Float},
                                                          {"bf16", c10::ScalarType::BFloat16},
                                                          {"fp16", c10::ScalarType::Half}};

// For summing bf16 and fp16 gradients over ranks.
enum class ReduceDtype { kGradient, kFp32 };
inline constexpr Choice<ReduceDtype> kReduceDtypes[] = {{"gradient", ReduceDtype::kGradient},
                                                        {"fp32", ReduceDtype::kFp32}};

}  // namespace trireme::train
