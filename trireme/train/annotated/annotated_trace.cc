#include "trireme/train/annotated/annotated_trace.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <ATen/Functions.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/spmd/graph/trace.h"
#include "trireme/train/config/config.h"

namespace trireme::train {
namespace {

// A batch as the loss reads it: whole on every rank.
StageInput zeros_like_samples(const dataset::Source& source, int64_t samples) {
  TRIREME_CHECK(source.size() > 0, "a plan needs the sizes of a sample, and the data has none");
  StageInput batch;
  for (const auto& [name, tensor] : source.get(0, std::nullopt)) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes.insert(sizes.begin(), samples);
    batch.tensors.emplace_back(name, at::zeros(sizes, tensor.options()));
  }
  return batch;
}

at::Tensor run_traced_link(const AnnotatedNet::Link& link, const model::RecomputePlan& plan,
                           const std::vector<at::Tensor>& inputs, at::ScalarType dtype) {
  const size_t count = inputs.size();
  std::vector<at::Tensor> kept = inputs;
  // As the stage does.
  if (plan.block && std::ranges::none_of(inputs, &at::Tensor::is_floating_point))
    kept.push_back(at::zeros({1}, dtype));
  const auto forward = [&link, count](const std::vector<at::Tensor>& in) {
    return link.forward(std::span(in).first(count));
  };
  return model::run_block(plan, forward, kept);
}

}  // namespace

spmd::Graph trace_annotated(const AnnotatedProblem& problem, const RunConfig& config,
                            const dataset::Source& source, int64_t samples) {
  const StageInput batch = zeros_like_samples(source, samples);
  const spmd::Annotations notes = problem.annotations();
  const AnnotatedNet net = spmd::made_without_memory([&] {
    AnnotatedNet made = problem.make_net();
    made.module().to(config.dtype());
    return made;
  });
  net.module().train();
  const model::RecomputePlan recompute = config.recompute_plan();
  return spmd::trace_step(net.module(), [&] {
    std::vector<at::Tensor> values;
    for (const spmd::Annotation& input : notes.inputs) {
      const at::Tensor x = batch[input.name];
      TRIREME_CHECK(x.defined(), "a sample has no tensor \"", input.name,
                    "\", which annotations() names as an input");
      const at::ScalarType dtype = x.is_floating_point() ? config.dtype() : x.scalar_type();
      values.push_back(spmd::without_memory(x.sizes(), dtype, &input.name));
    }
    for (size_t link = 0; link < net.links().size(); ++link) {
      values = {run_traced_link(net.links()[link], recompute.of_block(static_cast<int64_t>(link)),
                                values, config.dtype())};
    }
    return problem.loss_sum(values.front(), batch);
  });
}

}  // namespace trireme::train
