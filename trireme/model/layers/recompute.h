// Activations computed again in backward instead of being kept: memory for time. The bits are those
// of keeping them.
// Source: Chen et al. 2016, arXiv:1604.06174; selective: Korthikanti et al. 2022, arXiv:2205.05198,
//         section 5
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme::model {

// What a block computes again.
struct RecomputePlan {
  bool block = false;           // all of it: keeps the block's input alone
  bool attention = false;       // norm aside, projections and core
  bool attention_core = false;  // softmax(q k^T) v: keeps q, k and v
  bool feed_forward = false;    // norm aside
};

enum class Recompute { kNone, kSelective, kFull };
inline constexpr Choice<Recompute> kRecomputes[] = {
    {"none", Recompute::kNone}, {"selective", Recompute::kSelective}, {"full", Recompute::kFull}};

// modules: of kSelective, separated by commas: attention_core, attention, feed_forward.
// Throws: ConfigError on another module, or none for kSelective
RecomputePlan recompute_plan(Recompute kind, std::string_view modules);

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// function(inputs). Keeps the inputs, and runs the function once more when backward comes to it,
// with the random state that the default generators had. What the function captures must live until
// then; each backward runs once.
at::Tensor recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs);

// The same if `enabled`, or just function(inputs).
at::Tensor recompute_if(bool enabled, const TensorFunction& function,
                        const std::vector<at::Tensor>& inputs);

}  // namespace trireme::model
