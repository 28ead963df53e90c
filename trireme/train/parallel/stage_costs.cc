#include "trireme/train/parallel/stage_costs.h"

#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/train/offload/disk_store.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

bool is_trained(const RunConfig& config, const model::ParameterPlan& parameter) {
  return !config.is_frozen && parameter.is_trained &&
         !matches_any(config.train.freeze, parameter.name);
}

// Bytes of states that the optimizer's rule keeps per element of a parameter, for a [D, D] matrix.
double state_bytes_per_element(const RunConfig& config, int64_t D) {
  const parallel::Shard matrix{.name = "blocks.0.matrix.weight",
                               .weights = at::empty({D, D}, at::device(at::kMeta)),
                               .layout = mesh::Layout({D, D}, {}, {})};
  const at::ScalarType wide = at::promote_types(config.dtype(), at::kFloat);
  int64_t bytes = 0;
  for (const StateSpec& state : make_update_rule(config.optimizer)->state_of(matrix)) {
    const HeldState held = held_state(state, matrix, config.optimizer.state_dtype, wide);
    for (const HeldTensor& tensor : held.tensors) bytes += tensor.num_bytes();
  }
  return static_cast<double>(bytes) / static_cast<double>(D * D);
}

}  // namespace

double itemsize(const RunConfig& config) {
  return static_cast<double>(c10::elementSize(config.dtype()));
}

double wide_itemsize(const RunConfig& config) { return std::max(itemsize(config), 4.0); }

plan::NumberSizes number_sizes(const RunConfig& config, int64_t width) {
  plan::NumberSizes sizes{
      .weight = itemsize(config),
      .gradient = static_cast<double>(c10::elementSize(config.gradient_dtype())),
      .wide = wide_itemsize(config),
      .is_bf16 = config.dtype() == at::kBFloat16,
      .states = state_bytes_per_element(config, width),
      .has_masters = itemsize(config) < 4 && config.train.master_weights,
      .states_on_disk = config.offload.optimizer == OffloadPlace::kDisk,
      .weight_offload_rate =
          config.leaves_memory(config.offload.parameters) ? plan::kUnknownRate : 0,
      .gradient_offload_rate =
          config.leaves_memory(config.offload.gradients) ? plan::kUnknownRate : 0};
  if (sizes.states_on_disk) {
    static_assert(plan::kStateBuffers == DiskStore::kNumBuffers);
    const double chunk = static_cast<double>(kElementsAtATime) * sizes.states_and_masters();
    sizes.state_buffer = std::min(chunk, static_cast<double>(config.offload.buffer_bytes));
  }
  plan::hold_gradients(sizes, config.is_rank_first(), config.train.reproducible,
                       config.microbatches_per_step());
  return sizes;
}

std::set<std::string> frozen_parameters(const RunConfig& config,
                                        std::span<const model::ParameterPlan> parameters) {
  const std::string& frozen = config.train.freeze;
  const std::string names = parameters.empty()
                                ? "it has none"
                                : concat("the first is \"", parameters.front().name,
                                         "\" and the last \"", parameters.back().name, "\"");
  for (const std::string& pattern : split_list(frozen, ',')) {
    const auto fits = [&](const model::ParameterPlan& parameter) {
      return matches(pattern, parameter.name);
    };
    TRIREME_CHECK(std::ranges::any_of(parameters, fits), "train.freeze has \"", shown(pattern),
                  "\", which matches no parameter of the model; ", names);
  }
  std::set<std::string> result;
  for (const model::ParameterPlan& parameter : parameters) {
    if (!is_trained(config, parameter)) result.insert(parameter.name);
  }
  TRIREME_CHECK(config.is_frozen || parameters.empty() || result.size() < parameters.size(),
                "train.freeze is \"", shown(frozen),
                "\", and no parameter is left to train; name fewer");
  return result;
}

double trained_share(const RunConfig& config, std::span<const model::ParameterPlan> parameters) {
  double all = 0, trained = 0;
  for (const model::ParameterPlan& parameter : parameters) {
    const double count =
        parameter.weights_per_element *
        static_cast<double>(c10::multiply_integers(parameter.layout.whole_shape()));
    all += count;
    if (is_trained(config, parameter)) trained += count;
  }
  return all > 0 ? trained / all : 1;
}

double kept_bytes(const RunConfig& config, const model::ParameterPlan& parameter) {
  const auto count = static_cast<double>(c10::multiply_integers(parameter.layout.whole_shape()));
  if (parameter.weights_per_element == 0) return count * sizeof(float);  // scales
  const bool is_codes = parameter.format != WeightFormat::kRun;
  return count * static_cast<double>(c10::elementSize(is_codes ? dtype_of_codes(parameter.format)
                                                               : config.dtype()));
}

double kept_share(const RunConfig& config, std::span<const model::ParameterPlan> parameters) {
  double kept = 0, weights = 0;
  for (const model::ParameterPlan& parameter : parameters) {
    const auto count = static_cast<double>(c10::multiply_integers(parameter.layout.whole_shape()));
    weights += parameter.weights_per_element * count;
    kept += kept_bytes(config, parameter);
  }
  return weights > 0 ? kept / (weights * itemsize(config)) : 1;
}

plan::Axes plan_axes(const ParallelConfig& parallel) {
  plan::Axes axes{.data = parallel.data, .shard = parallel.shard};
  for (const AxisKey& key : kAxisKeys) {
    const auto* const same = std::ranges::find(plan::kAxisSizes, key.axis, &plan::AxisSize::axis);
    TRIREME_ASSERT(same != std::end(plan::kAxisSizes), "the planner has no axis ", key.axis);
    axes.*same->size = parallel.*key.size;
  }
  return axes;
}

double state_bytes_per_parameter(const RunConfig& config, int64_t width) {
  return plan::state_bytes_per_parameter(number_sizes(config, width), config.parallel.zero,
                                         plan_axes(config.parallel).sharing());
}

parallel::SplitOptions split_options(const RunConfig& config, const parallel::Schedule& schedule) {
  parallel::SplitOptions options{.num_stages = schedule.num_stages()};
  // A rank's stages share its memory and its microbatches evenly.
  const double stages_per_rank = static_cast<double>(schedule.num_stages()) / schedule.num_ranks();
  options.memory_limit = static_cast<double>(config.parallel.stage_memory) / stages_per_rank;
  const std::vector<parallel::PeakActivations> peaks = parallel::peak_activations(schedule);
  for (const int rank : schedule.rank_of_stage) {
    options.held_microbatches.push_back(peaks[static_cast<size_t>(rank)].until_weight /
                                        stages_per_rank);
  }
  return options;
}

}  // namespace trireme::train
