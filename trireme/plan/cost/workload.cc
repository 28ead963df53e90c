#include "trireme/plan/cost/workload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "trireme/mesh/axis_kinds.h"
#include "trireme/model/family/family.h"

namespace trireme::plan {
namespace {

using mesh::AxisKind;
using mesh::Tokens;

// Of each of kAxisSizes. A search asks for products of them for millions of layouts.
constexpr auto kKinds = [] {
  std::array<AxisKind, std::size(kAxisSizes)> kinds{};
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (const AxisKind& kind : mesh::kAxisKinds) {
      if (kind.name == kAxisSizes[i].axis) kinds[i] = kind;
    }
  }
  return kinds;
}();

// The product of the sizes of the axes for which `counts`.
template <typename Counts>
int64_t product_of(const Axes& axes, const Counts& counts) {
  int64_t product = 1;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (!kKinds[i].is_folded && counts(kKinds[i])) product *= axes.*kAxisSizes[i].size;
  }
  return product;
}

}  // namespace

int64_t Axes::num_ranks() const {
  return product_of(*this, [](const AxisKind&) { return true; });
}

int64_t Axes::sample_ranks() const {
  return product_of(*this,
                    [](const AxisKind& kind) { return kind.tokens == Tokens::kOtherSamples; });
}

int64_t Axes::token_ranks() const {
  return product_of(*this, [](const AxisKind& kind) { return kind.tokens != Tokens::kSame; });
}

int64_t Axes::sharing() const {
  return shard * product_of(*this, [](const AxisKind& kind) { return kind.shares_states; });
}

namespace {

double of_int(int64_t n) { return static_cast<double>(n); }

// Forward and backward of one block, for a token.
double block_flops(const model::ModelConfig& config, bool sparse) {
  model::ModelConfig one = config;
  one.layers = 1;
  one.vocab_size = 0;
  one.sparse.dense_layers = sparse ? 0 : 1;
  one.sparse.expert_interval = 1;
  model::ModelConfig none = one;
  none.layers = 0;
  return model::flops_per_token(one) - model::flops_per_token(none);
}

}  // namespace

// Without adapters, which are among what a PartTraining says of each part.
ModelCounts count_model(const model::ModelConfig& with_adapters) {
  const model::ModelConfig config = with_adapters.without_adapters();
  const model::Family& family = model::family_of(config);
  const double D = of_int(config.width);
  model::ModelConfig wider = config;
  wider.ffn_width += 1;
  model::ModelConfig none = config;
  none.layers = 0;
  ModelCounts counts;
  const double matmul = family.matmul_parameters(config, false);
  counts.feed_forward_matrices = (family.matmul_parameters(wider, false) - matmul) / D;
  counts.attention_matmul = matmul - counts.feed_forward_matrices * D * of_int(config.ffn_width);
  counts.dense_parameters = of_int(model::block_parameters(config, false));
  counts.dense_flops = block_flops(config, false);
  if (config.sparse.experts > 0) {
    counts.sparse_parameters = of_int(model::block_parameters(config, true));
    counts.sparse_flops = block_flops(config, true);
    counts.expert_parameters = counts.feed_forward_matrices * D * of_int(config.expert_width());
  }
  counts.has_tied_head = config.has_tied_head();
  counts.is_causal = config.is_causal();
  counts.head_dense = family.head_matmul_parameters(config) - of_int(config.logits_per_token()) * D;
  const int64_t rows = config.classes > 0 ? config.classes : config.vocab_size;
  counts.head_parameters = counts.has_tied_head ? 0 : of_int(rows) * D;
  counts.embedding_parameters = of_int(model::num_parameters(none)) - counts.head_parameters;
  counts.flops_per_token = model::flops_per_token(with_adapters);
  return counts;
}

Workload work_of_teacher(const Workload& work) {
  TRIREME_ASSERT(work.teacher != nullptr, "a workload without a teacher");
  Workload teacher = work;
  teacher.model = work.teacher->model;
  teacher.counted = work.teacher->counted;
  teacher.teacher = nullptr;
  teacher.model.sequence_length = work.model.sequence_length;
  teacher.sizes = work.sizes.with_share(0);
  teacher.embedding = teacher.head = teacher.block = PartTraining::frozen();
  teacher.blocks = nullptr;
  teacher.trained_flops_per_token = 0;
  teacher.recompute_kind = model::Recompute::kNone;
  teacher.recompute = {};
  teacher.input_offload_rate = 0;
  if (teacher.model.sparse.experts < work.axes.expert) teacher.axes.expert = 1;
  return teacher;
}

void hold_gradients(NumberSizes& sizes, bool rank_first, bool in_tree, int64_t num_microbatches) {
  sizes.rank_first = rank_first;
  sizes.in_tree = in_tree;
  sizes.adds_wide = rank_first && !in_tree && num_microbatches > 1;
  const int64_t of_tree = std::bit_width(static_cast<uint64_t>(num_microbatches)) - 1;
  const int64_t in_turn = rank_first || num_microbatches == 1 ? 0 : 1;
  sizes.held_gradients = in_tree ? of_tree : in_turn;
}

void hold_gradients(Workload& work) {
  hold_gradients(work.sizes, work.rank_first.value_or(work.zero >= 2), work.reproducible,
                 work.num_microbatches());
}

StateBytes state_bytes_by_kind(const NumberSizes& sizes, int64_t zero, int64_t ranks) {
  const bool has_states = !sizes.states_on_disk && !sizes.updated_by_host;
  const double states = has_states ? sizes.states_and_masters() : 0;
  const double parts = zero == 0 ? 1 : static_cast<double>(ranks);
  const bool has_weights = zero < 3 || sizes.weight_offload_rate == 0;
  const bool has_gradients = zero < 2 || sizes.gradient_offload_rate == 0;
  const double weights = has_weights ? sizes.kept_weight() / (zero < 3 ? 1 : parts) : 0;
  const double kept = has_gradients ? sizes.kept_gradient() : 0;
  const double held = sizes.gradient * static_cast<double>(sizes.held_gradients);
  double gradients = 0;
  if (sizes.rank_first) {
    gradients = (kept + held) / parts;
  } else if (zero >= 2 || sizes.in_tree) {  // its part has memory of its own
    gradients = kept / parts + held;
  } else {  // and otherwise is in the sum
    gradients = kept;
  }
  return {.weights = weights,
          .gradients = gradients,
          .states = states / parts,
          .outer = sizes.outer / parts};
}

double state_bytes_per_parameter(const NumberSizes& sizes, int64_t zero, int64_t ranks) {
  return state_bytes_by_kind(sizes, zero, ranks).total();
}

}  // namespace trireme::plan
