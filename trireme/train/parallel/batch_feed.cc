#include "trireme/train/parallel/batch_feed.h"

#include <set>

#include <ATen/ATen.h>

#include "trireme/train/config/config.h"

namespace trireme::train {

parallel::Feed feed_of(const std::vector<dataset::Batch>& batches, at::Device device) {
  return [&batches, device](const std::string& edge, int64_t microbatch) {
    const at::Tensor& tensor = batches[static_cast<size_t>(microbatch)][edge];
    return tensor.defined() ? tensor.to(device, /*non_blocking=*/true) : tensor;
  };
}

verify::ProbeContext probed_batch(const dataset::Batch& batch, const RunConfig& config,
                                  verify::ProbeSink* sink, double scale) {
  const int64_t num_samples = batch.step_size / config.parallel.learners;
  return {.sink = sink,
          .first_sample = batch.first_sample - config.learner * num_samples,
          .num_samples = num_samples,
          .samples = batch.size(),
          .gradient_scale = scale};
}

std::vector<std::string> inputs_of_batch(const std::vector<StageEdges>& edges) {
  std::set<std::string> written;
  for (const StageEdges& stage : edges) written.insert(stage.outputs.begin(), stage.outputs.end());
  std::set<std::string> fed;
  for (const StageEdges& stage : edges) {
    for (const std::string& name : stage.inputs) {
      if (!written.contains(name)) fed.insert(name);
    }
  }
  return {fed.begin(), fed.end()};
}

}  // namespace trireme::train
