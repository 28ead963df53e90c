// The kinds of gradient compression. Each is a hook in this folder.
#pragma once

#include "trireme/base/choice.h"

namespace trireme::parallel {

enum class Compression { kNone, kBf16, kFp16, kInt8, kPowerSgd, kTopK };
inline constexpr Choice<Compression> kCompressions[] = {
    {"none", Compression::kNone},         {"bf16", Compression::kBf16},
    {"fp16", Compression::kFp16},         {"int8", Compression::kInt8},
    {"powersgd", Compression::kPowerSgd}, {"topk", Compression::kTopK}};

// Whether a rank keeps what a step did not send and adds it to the next gradient.
constexpr bool keeps_residual(Compression compression) {
  return compression == Compression::kPowerSgd || compression == Compression::kTopK;
}

}  // namespace trireme::parallel
