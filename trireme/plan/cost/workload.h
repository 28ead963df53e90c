// What a training step computes and how it is divided over ranks: everything that the cost model
// reads. Plain numbers; made from a run's config (tasks/language/workload.h) or by the planner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/family/config.h"
#include "trireme/model/family/family.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/plan/cost/model_counts.h"

namespace trireme::plan {

// Bytes of a number. `states`: numbers of optimizer state per parameter, without master weights.
struct NumberSizes {
  double weight = 4;  // and activation
  double gradient = 4;
  double wide = 4;  // of what is computed in fp32 at least
  double states = 2;
  bool has_masters = false;
  bool states_on_disk = false;
  int64_t held_gradients = 0;  // see held_gradients() in state_bytes.h
};

// Numbers of ranks. `shard` of the `data` ranks divide one copy of the states.
struct Axes {
  int64_t data = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t expert = 1;

  int64_t num_ranks() const { return data * tensor * pipeline * context; }
  // The ranks over which ZeRO divides states: of data and context, and of those that hold the same
  // experts.
  int64_t sharing() const { return shard * context; }
  int64_t sharing_experts() const { return expert == 1 ? sharing() : data * context / expert; }
};

inline namespace internal {
inline double number(int64_t n) { return static_cast<double>(n); }
}  // namespace internal

struct Workload {
  model::ModelConfig model;  // with its vocab_size; set_model() sets both
  std::shared_ptr<const ModelCounts> counted{};
  NumberSizes sizes;
  Axes axes;
  int64_t global_batch = 1;  // sequences
  int64_t micro_batch = 1;
  bool reproducible = false;  // gradients are summed in a tree
  int64_t zero = 0;
  int64_t gathered_units = 3;
  bool sequence_parallel = false;
  bool overlap = true;        // gradients and gathers behind computation
  bool hides_tensor = false;  // the tensor axis communicates while it multiplies
  std::string schedule = "1f1b";
  int64_t stages_per_rank = 0;
  int64_t bucket_bytes = 4 << 20;
  int64_t expert_chunk = 0;
  int64_t expert_replicas = 0;
  bool separate_documents = false;
  model::Recompute recompute_kind = model::Recompute::kNone;
  model::RecomputePlan recompute{};
  model::KeptByBlock kept_by_block{};

  void set_model(model::ModelConfig config) {
    model = std::move(config);
    counted = std::make_shared<ModelCounts>(count_model(model));
  }
  const ModelCounts& counts() const {
    TRIREME_ASSERT(counted != nullptr, "a workload without a model");
    return *counted;
  }

  int64_t sequences_per_forward() const { return micro_batch * axes.data; }
  int64_t num_microbatches() const {
    return (global_batch + sequences_per_forward() - 1) / sequences_per_forward();
  }
  double tokens_per_step() const {
    return static_cast<double>(global_batch) * static_cast<double>(model.sequence_length);
  }
};

}  // namespace trireme::plan
