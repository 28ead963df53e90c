#include "trireme/train/parallel/stage_costs.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include "trireme/model/family/family.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train::inline internal {
namespace {

double itemsize(const RunConfig& config) {
  return static_cast<double>(c10::elementSize(config.dtype()));
}

// The item size of what is computed in fp32 at least.
double wide_itemsize(const RunConfig& config) { return std::max(itemsize(config), 4.0); }

// State elements that the optimizer's rule keeps per element of a parameter, for a block's matrix.
double elements_kept_per_parameter(const RunConfig& config) {
  const int64_t D = config.model.width;
  const parallel::Shard matrix{.name = "blocks.0.matrix.weight",
                               .weights = at::empty({D, D}, at::device(at::kMeta)),
                               .layout = mesh::Layout({D, D}, {}, {})};
  int64_t elements = 0;
  for (const StateSpec& state : make_update_rule(config.optimizer)->state_of(matrix)) {
    elements += c10::multiply_integers(state.local_shape);
  }
  return static_cast<double>(elements) / static_cast<double>(D * D);
}

// Parameters of one block, of the embedding (with the few of the last norm), and of the head.
struct Parameters {
  double block = 0;
  double embedding = 0;
  double head = 0;
};

Parameters count_parameters(const model::ModelConfig& config) {
  model::ModelConfig one = config, none = config;
  one.layers = 1;
  none.layers = 0;
  Parameters count;
  count.block = static_cast<double>(num_parameters(one) - num_parameters(none));
  const double rest = static_cast<double>(num_parameters(none));
  const double matrix = static_cast<double>(config.vocab_size * config.width);
  count.head = config.has_tied_head() ? 0 : matrix;
  count.embedding = rest - count.head;
  return count;
}

// Bytes that one microbatch's forward keeps.
struct Kept {
  double block = 0;
  double head = 0;
};

// Whether attention keeps keys and values once per query head: if ranks share kv heads, and if
// libtorch's kernel reads them.
bool copies_keys(const RunConfig& config, const model::RecomputePlan& again) {
  const model::ModelConfig& model = config.model;
  if (config.parallel.tensor > model.kv_heads) return true;
  const bool has_kernel = config.parallel.context == 1 && !config.data.separate_documents;
  // All query heads read a single kv head without a copy.
  return has_kernel && !again.attention_core && model.kv_heads > config.parallel.tensor;
}

// The memory that the last stage keeps for its head: the norm's input or, if composed, two fp32
// tensors; the loss's gradients; and a tied weight that came from the first stage.
double bytes_of_head(const RunConfig& config, double norm_input, double rows) {
  const double D = static_cast<double>(config.model.width);
  const double weight = static_cast<double>(config.model.vocab_size) /
                        static_cast<double>(config.parallel.tensor) * D;
  const bool comes_from_another_rank = config.model.has_tied_head() &&
                                       config.parallel.pipeline > 1 &&
                                       !parallel::ends_where_it_begins(config.parallel.schedule);
  return norm_input * D * rows + wide_itemsize(config) * (D * rows + weight) +
         (comes_from_another_rank ? itemsize(config) * weight : 0);
}

Kept count_kept(const RunConfig& config) {
  const model::ModelConfig& model = config.model;
  const double item = itemsize(config);
  const model::KeptByBlock of_family = model::family_of(model).kept_by_block(config.dtype());
  const double tensor = static_cast<double>(config.parallel.tensor);
  const double tokens = static_cast<double>(config.train.micro_batch * model.sequence_length) /
                        static_cast<double>(config.parallel.context);
  // Between the layers each tensor rank has all rows, or only its own.
  const double rows = config.parallel.sequence_parallel ? tokens / tensor : tokens;
  const double D = static_cast<double>(model.width), F = static_cast<double>(model.ffn_width);
  const model::RecomputePlan again =
      model::recompute_plan(config.train.recompute, config.train.recompute_modules);
  const double G =
      copies_keys(config, again) ? D : static_cast<double>(model.kv_heads * model.head_width());
  const double norm_input = of_family.composes_norms ? 2 * 4 : item;
  Kept kept;
  kept.head = bytes_of_head(config, norm_input, rows);
  if (again.block) {
    kept.block = item * D * rows;
    return kept;
  }
  const double attention = again.attention ? 0 : 2 * D + 2 * G;  // q, its output, k and v
  const double feed_forward = again.feed_forward ? 0 : of_family.feed_forward * F;
  // Recomputation starts from the residual, which a composed norm does not keep.
  const int residuals = of_family.composes_norms ? again.attention + again.feed_forward : 0;
  kept.block = (2 * (norm_input + item) + residuals * item) * D * rows +  // two norms' in and out
               item * (attention + feed_forward) * tokens / tensor;
  return kept;
}

}  // namespace

double state_bytes_per_parameter(const RunConfig& config) {
  const double item = itemsize(config);
  const bool has_masters = item < 4 && config.train.master_weights;
  const double states =
      config.offload.optimizer == OffloadPlace::kDisk
          ? 0
          : wide_itemsize(config) * (elements_kept_per_parameter(config) + (has_masters ? 1 : 0));
  const int64_t zero = config.parallel.zero;
  const double ranks =
      zero == 0 ? 1 : static_cast<double>(config.parallel.shard * config.parallel.context);
  const double whole = static_cast<double>(c10::elementSize(config.gradient_dtype()));
  const double gradients = std::max(zero >= 2 ? whole / ranks : whole,
                                    whole * static_cast<double>(config.held_gradients()));
  return (zero >= 3 ? item / ranks : item) + gradients + states / ranks;
}

std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) {
  model::ModelConfig one = config.model;
  one.layers = 1;
  one.vocab_size = 0;
  const Parameters parameters = count_parameters(config.model);
  const Kept kept = count_kept(config);
  const double per_parameter =
      state_bytes_per_parameter(config) / static_cast<double>(config.parallel.tensor);
  std::vector<parallel::LayerCost> costs(static_cast<size_t>(config.model.layers),
                                         {.time = model::flops_per_token(one),
                                          .memory = parameters.block * per_parameter,
                                          .activations = kept.block});
  costs.front().memory += parameters.embedding * per_parameter;
  costs.back().memory += parameters.head * per_parameter;
  costs.back().activations += kept.head;
  costs.back().time +=
      6 * static_cast<double>(config.model.vocab_size) * static_cast<double>(config.model.width);
  return costs;
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

}  // namespace trireme::train::inline internal
