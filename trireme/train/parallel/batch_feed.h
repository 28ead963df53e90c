// The inputs that pipeline stages read from the batches.
#pragma once

#include <string>
#include <vector>

#include "trireme/dataset/batch_loader.h"
#include "trireme/mesh/probe.h"
#include "trireme/parallel/pipeline/run/executor.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// The tensors of the microbatches, on `device`. Batches in pinned memory are copied while the host
// goes on. The batches must outlive the feed.
parallel::Feed feed_of(const std::vector<dataset::Batch>& batches, at::Device device);

// What probes of a microbatch need to know of it, but for the stage. The samples are those of this
// learner, if there are several.
// scale: the factor of its gradients
verify::ProbeContext probed_batch(const dataset::Batch& batch, const RunConfig& config,
                                  verify::ProbeSink* sink, double scale);

// The inputs that no stage writes, each once.
std::vector<std::string> inputs_of_batch(const std::vector<StageEdges>& edges);

}  // namespace trireme::train
