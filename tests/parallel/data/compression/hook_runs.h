// A hook on its own, without DDP: gradients that are awkward, several steps, every rank compared.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel::testing {

using Gradients = std::vector<at::Tensor>;  // one a parameter
using State = std::map<std::string, at::Tensor>;
using MakeHook = std::function<std::shared_ptr<GradientHook>()>;
using MakeGradient = std::function<at::Tensor(int step, int rank, size_t parameter)>;

// Matrices, vectors, a scalar, one without elements, four dimensions; sizes odd and above a block.
const std::vector<std::vector<int64_t>>& shapes();
std::string name_of(size_t parameter);

// Any dense gradient of this dtype; ranks, steps and parameters differ, in size too.
MakeGradient waves(at::ScalarType dtype);

struct HookRunOptions {
  int steps = 3;
  size_t parameters_per_bucket = 100;
  int resumed_after = 0;  // steps after which a new hook takes over, with the state alone; 0: never
};

struct HookRun {
  std::vector<Gradients> sums;             // [steps]; checked to have the same bits on every rank
  std::vector<std::vector<State>> states;  // [steps][ranks], after each step
  std::vector<int64_t> bytes;              // [ranks] of the last step; checked by counting
};

// Padding between gradients is NaN.
HookRun run_hook(int ranks, const MakeHook& make_hook, const MakeGradient& gradient,
                 const HookRunOptions& options = {});

// Sums over ranks in rank order in the gradient's dtype, or in fp32 where that is less precise.
Gradients plain_sums(int ranks, const MakeGradient& gradient, int step);

void expect_same_bits(const std::vector<Gradients>& actual, const std::vector<Gradients>& expected);

// On three ranks: how many parameters share a bucket, and a resume from the state alone.
void expect_bucketing_and_resume_change_no_bit(const MakeHook& make_hook, at::ScalarType dtype);

// Nothing is lost: what all steps gave and what the residuals still hold is what all ranks'
// gradients sum to. Gradients are fp64: each of steps * ranks additions rounds by 2^-53 of a
// partial sum.
void expect_error_feedback_keeps_everything(const MakeHook& make_hook);

}  // namespace trireme::parallel::testing
