// Length: one class, whose states are planned, updated, saved and converted alike.
#include "trireme/train/optimizer/optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/train/optimizer/elementwise.h"
#include "trireme/train/optimizer/onebit_rules.h"
#include "trireme/train/optimizer/parameter_groups.h"
#include "trireme/train/optimizer/update_rules.h"

namespace trireme::train {

// Shards are cut into chunks that are updated one after the other: weights and gradients of lower
// precision are widened for the update, and all of them at once would take too much memory. The
// store decides where states lie; step() and fill_masters() only visit chunks, so that a disk can
// bring the next one meanwhile. Rules that need whole parameters get them uncut, and each expert of
// a stack by itself, so that its update does not depend on the others of its rank. The master is a
// shard's last state: it is updated in place of the weights, which are then rounded from it.

namespace {

// A GPU needs large kernels and few calls. States that are kept elsewhere come in small pieces.
constexpr int64_t kElementsAtATimeOnGpu = 64 << 20;

// The piece's elements of a tensor that has its shard's shape; the tensor itself if that is all.
at::Tensor view_piece(const at::Tensor& tensor, const UpdatePiece& piece) {
  if (piece.count == tensor.numel()) return tensor;
  return tensor.view(-1).narrow(0, piece.first, piece.count);
}

// Hints about the piece's weights and gradients.
void hint(const parallel::Shard& shard, const UpdatePiece& piece,
          void (parallel::PartMemory::*about)(const at::Tensor&)) {
  if (shard.weights_home != nullptr) {
    (shard.weights_home->*about)(view_piece(shard.weights, piece));
  }
  if (shard.gradient_home != nullptr && shard.gradient.defined()) {
    (shard.gradient_home->*about)(view_piece(shard.gradient, piece));
  }
}

// Adds the item, or one for each expert of a stack.
void add_matrices(const UpdateItem& item, bool is_stack, std::vector<UpdateItem>& matrices) {
  if (!is_stack) {
    matrices.push_back(item);
    return;
  }
  for (int64_t e = 0; e < item.weights.size(0); ++e) {
    UpdateItem& matrix = matrices.emplace_back(item);
    matrix.weights = item.weights.select(0, e);
    matrix.gradient = item.gradient.select(0, e);
    for (at::Tensor& state : matrix.state) state = state.select(0, e);
  }
}

// The items in lists whose tensors are on one device each.
std::vector<std::vector<UpdateItem>> by_device(const std::vector<UpdateItem>& items) {
  std::vector<std::vector<UpdateItem>> lists;
  for (const bool on_host : {true, false}) {
    std::vector<UpdateItem> list;
    std::ranges::copy_if(items, std::back_inserter(list), [on_host](const UpdateItem& item) {
      return item.weights.is_cpu() == on_host;
    });
    if (!list.empty()) lists.push_back(std::move(list));
  }
  return lists;
}

using RulePtr = std::unique_ptr<const UpdateRule>;

RulePtr make_muon(const OptimizerConfig& c) {
  return std::make_unique<MuonRule>(
      MuonOptions{.momentum = c.momentum,
                  .nesterov = c.nesterov,
                  .adamw_patterns = split_list(c.adamw_parameters, ','),
                  .beta1 = c.beta1,
                  .beta2 = c.beta2,
                  .epsilon = c.epsilon});
}

OneBitOptions onebit_options(const OptimizerConfig& c) {
  return {.beta1 = c.beta1, .beta2 = c.beta2, .epsilon = c.epsilon, .freeze_step = c.freeze_step};
}

// A new optimizer needs a line here and its rule.
constexpr Choice<RulePtr (*)(const OptimizerConfig&)> kRules[] = {
    {"adamw",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<AdamWRule>(c.beta1, c.beta2, c.epsilon);
     }},
    {"sgd",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<SgdRule>(c.momentum, c.nesterov);
     }},
    {"lion",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<LionRule>(c.beta1, c.beta2);
     }},
    {"adafactor",
     [](const OptimizerConfig&) -> RulePtr { return std::make_unique<AdafactorRule>(); }},
    {"muon", make_muon},
    {"lamb",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<LambRule>(c.beta1, c.beta2, c.epsilon);
     }},
    {"lars",
     [](const OptimizerConfig& c) -> RulePtr { return std::make_unique<LarsRule>(c.momentum); }},
    {"onebit-adam",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<OneBitAdamRule>(onebit_options(c));
     }},
    {"onebit-lamb",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<OneBitLambRule>(onebit_options(c));
     }},
    {"zero-one-adam",
     [](const OptimizerConfig& c) -> RulePtr {
       return std::make_unique<ZeroOneAdamRule>(c.beta1, c.beta2, c.epsilon, c.variance_updates);
     }},
};

// The tensors of one state, the first of those that are left.
std::span<const at::Tensor> take(std::span<const at::Tensor>& left, const HeldState& state) {
  const auto tensors = left.first(state.tensors.size());
  left = left.subspan(tensors.size());
  return tensors;
}

// round_stochastically() of the shard's elements from `first` on.
void round_part(const parallel::Shard& shard, const at::Tensor& exact, const at::Tensor& rounded,
                int64_t first, RandomKey key) {
  const mesh::BoxRuns part(shard.layout.whole_box(shard.rank), shard.layout.whole_shape());
  round_stochastically(exact, rounded, part, first, key);
}

at::ScalarType update_dtype(const parallel::Shard& shard) {
  return at::promote_types(shard.weights.scalar_type(), at::kFloat);
}

}  // namespace

std::vector<std::string> optimizer_names() { return names_of(kRules); }

std::unique_ptr<const UpdateRule> make_update_rule(const OptimizerConfig& config) {
  return choose(kRules, "optimizer.name", config.name)(config);
}

bool needs_whole_parameters(const OptimizerConfig& config) {
  return make_update_rule(config)->needs_whole_parameters();
}

std::string optimizers_in_words(bool need_whole_parameters) {
  std::vector<std::string> names = optimizer_names();
  std::erase_if(names, [&](const std::string& name) {
    return needs_whole_parameters({.name = name}) != need_whole_parameters;
  });
  return in_words(names);
}

Optimizer::Optimizer(std::span<const parallel::Shard> shards, const OptimizerConfig& config,
                     const WeightOptions& weights, const OffloadOptions& offload)
    : shards_(shards),
      weights_(weights),
      state_dtype_(config.state_dtype),
      rule_(make_update_rule(config)),
      settings_(parameter_settings(shards, parse_parameter_groups(config.groups),
                                   config.weight_decay, weights.parameters)) {
  store_ = make_state_store(offload, plan_states(offload));
  fill_masters();
}

// Fills in states_ and chunks_.
StatePlan Optimizer::plan_states(const OffloadOptions& offload) {
  StatePlan plan;
  std::vector<ShardSize> sizes;
  bool on_device = false;
  for (const parallel::Shard& shard : shards_) {
    TRIREME_ASSERT(shard.weights.is_contiguous(), shard.name, " is not contiguous");
    ShardState& state = states_.emplace_back();
    ShardSize& size = sizes.emplace_back();
    if (!shard.is_trained) continue;
    const at::ScalarType dtype = update_dtype(shard);
    for (const StateSpec& spec : rule_->state_of(shard)) {
      state.states.push_back(held_state(spec, shard, state_dtype_, dtype));
    }
    state.has_master = weights_.master_weights && dtype != shard.weights.scalar_type();
    if (state.has_master) {
      state.states.push_back(
          held_state(state_like(shard, kMasterState), shard, StateDtype::kFp32, dtype));
    }
    state.first_tensor = plan.tensors.size();
    size.elements = shard.weights.numel();
    for (const HeldState& held : state.states) {
      for (const HeldTensor& tensor : held.tensors) {
        plan.tensors.push_back({tensor.local_shape, tensor.dtype, shard.weights.device()});
        size.state_bytes.push_back(plan.tensors.back().num_bytes());
        state_bytes_ += size.state_bytes.back();
      }
    }
    state.num_tensors = plan.tensors.size() - state.first_tensor;
    on_device |= !shard.weights.is_cpu();
  }
  const bool is_large = on_device && offload.place == OffloadPlace::kNone &&
                        state_dtype_ == StateDtype::kFp32;  // others are widened
  ChunkLimits limits{.elements = is_large ? kElementsAtATimeOnGpu : kElementsAtATime,
                     .may_cut = !rule_->needs_whole_parameters()};
  if (offload.place == OffloadPlace::kDisk) limits.bytes = offload.buffer_bytes;
  chunks_ = cut_into_chunks(sizes, limits);
  for (const UpdateChunk& chunk : chunks_) {
    std::vector<StatePiece>& pieces = plan.chunks.emplace_back();
    for (const UpdatePiece& piece : chunk) {
      const bool is_whole = piece.count == sizes[piece.shard].elements;
      size_t tensor = states_[piece.shard].first_tensor;
      for (const HeldState& held : states_[piece.shard].states) {
        for (const HeldTensor& of_state : held.tensors) {
          const int64_t each = of_state.elements_each;
          pieces.push_back({tensor, piece.first / each,
                            is_whole ? plan.tensors[tensor].numel() : piece.count / each});
          ++tensor;
        }
      }
    }
  }
  return plan;
}

void Optimizer::fill_masters() {
  std::vector<size_t> with_master;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const auto has_master = [this](const UpdatePiece& piece) {
      return states_[piece.shard].has_master;
    };
    if (std::ranges::any_of(chunks_[i], has_master)) with_master.push_back(i);
  }
  store_->visit(with_master, [this](size_t chunk, std::span<const at::Tensor> tensors) {
    const c10::NoGradGuard no_grad;
    for (const UpdatePiece& piece : chunks_[chunk]) {
      const ShardState& state = states_[piece.shard];
      const auto states = tensors.first(state.num_tensors);
      tensors = tensors.subspan(state.num_tensors);
      if (state.has_master) states.back().copy_(view_piece(shards_[piece.shard].weights, piece));
      hint(shards_[piece.shard], piece, &parallel::PartMemory::let_go);
    }
  });
}

UpdateItem Optimizer::make_item(const UpdatePiece& piece, std::span<const at::Tensor> states,
                                double gradient_factor, const at::Tensor& factor_1) const {
  const size_t i = piece.shard;
  const parallel::Shard& shard = shards_[i];
  TRIREME_ASSERT(shard.gradient.sizes() == shard.weights.sizes(), shard.name, " has shape ",
                 shard.weights.sizes(), " and a gradient of shape ", shard.gradient.sizes());
  const at::ScalarType dtype = update_dtype(shard);
  UpdateItem item{
      .weights = view_piece(shard.weights, piece),
      // Which of them are offloaded may differ. The update is where the weights are.
      .gradient = view_piece(shard.gradient.contiguous(), piece).to(shard.weights.device()),
      .weight_decay = settings_[i].weight_decay,
      .rate_scale = settings_[i].rate_scale};
  for (const HeldState& held : states_[i].states) {
    item.state.push_back(widened(held, take(states, held), dtype));
  }
  if (states_[i].has_master) {
    item.weights = item.state.back();
    item.state.pop_back();
  } else {
    item.weights = item.weights.to(dtype);
  }
  // Piece by piece, in a core's cache.
  const bool in_pieces = item.weights.is_cpu() && !rule_->needs_whole_parameters();
  if (in_pieces) {
    item.gradient_factor = gradient_factor;
    if (rounds_to_nearest(shard)) item.rounded = view_piece(shard.weights, piece);
    return item;
  }
  if (gradient_factor == 1) return item;
  // The factor undoes a loss scale. fp16 cannot represent the unscaled gradients.
  if (item.gradient.scalar_type() != dtype) {
    // In one pass, as a factor with a dimension widens.
    item.gradient = item.gradient * factor_1.to(item.gradient.device());
  } else if (shard.gradient_home != nullptr) {
    item.gradient = item.gradient.mul(gradient_factor);  // a disk would write it once more
  } else {
    item.gradient.mul_(gradient_factor);
  }
  return item;
}

bool Optimizer::rounds_to_nearest(const parallel::Shard& shard) const {
  const at::ScalarType dtype = shard.weights.scalar_type();
  return dtype != update_dtype(shard) && !(weights_.stochastic_rounding && dtype == at::kBFloat16);
}

// Copies weights and states to where they are kept if the update was made elsewhere.
void Optimizer::store(const UpdatePiece& piece, const UpdateItem& item,
                      std::span<const at::Tensor> states) const {
  const parallel::Shard& shard = shards_[piece.shard];
  const auto round_as = [&](const std::string& of) -> Round {
    return [&, of](const at::Tensor& exact, const at::Tensor& rounded) {
      round_part(shard, exact, rounded, piece.first,
                 random_key(weights_.seed, concat(of, "/", num_steps_, "/", shard.name)));
    };
  };
  for (size_t k = 0; k < item.state.size(); ++k) {
    const HeldState& held = states_[piece.shard].states[k];
    narrow(held, item.state[k], take(states, held), round_as(held.tensors.front().name));
  }
  const at::Tensor weights = view_piece(shard.weights, piece);
  if (item.rounded.defined() || weights.scalar_type() == item.weights.scalar_type()) return;
  if (!rounds_to_nearest(shard)) {
    round_as("rounding")(item.weights, weights);
  } else {
    weights.copy_(item.weights);
  }
}

void Optimizer::step(double learning_rate, double gradient_factor) {
  const c10::NoGradGuard no_grad;
  ++num_steps_;
  const auto is_due = [this](const UpdatePiece& piece) {
    const parallel::Shard& shard = shards_[piece.shard];
    return shard.gradient.defined() && shard.weights.numel() > 0;
  };
  at::Tensor factor_1;
  if (gradient_factor != 1 && !shards_.empty()) {
    factor_1 = at::full({1}, gradient_factor, shards_.front().weights.options().dtype(at::kFloat));
  }
  std::vector<size_t> due;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (std::ranges::any_of(chunks_[i], is_due)) due.push_back(i);
  }
  size_t num_visited = 0;
  store_->visit(due, [&](size_t chunk, std::span<const at::Tensor> tensors) {
    if (++num_visited < due.size()) {
      for (const UpdatePiece& piece : chunks_[due[num_visited]]) {
        hint(shards_[piece.shard], piece, &parallel::PartMemory::will_need);
      }
    }
    std::vector<UpdateItem> items;
    std::vector<UpdatePiece> pieces;
    std::vector<std::span<const at::Tensor>> kept;  // one per piece
    for (const UpdatePiece& piece : chunks_[chunk]) {
      const auto states = tensors.first(states_[piece.shard].num_tensors);
      tensors = tensors.subspan(states.size());
      if (!is_due(piece)) continue;
      items.push_back(make_item(piece, states, gradient_factor, factor_1));
      pieces.push_back(piece);
      kept.push_back(states);
    }
    std::vector<UpdateItem> matrices;  // of the rules that need whole parameters
    for (size_t k = 0; rule_->needs_whole_parameters() && k < items.size(); ++k) {
      const mesh::Layout& layout = shards_[pieces[k].shard].layout;
      add_matrices(items[k], is_expert_stack(layout) || is_expert_bias(layout), matrices);
    }
    for (const std::vector<UpdateItem>& alike :
         by_device(rule_->needs_whole_parameters() ? matrices : items)) {
      rule_->update(alike, learning_rate, num_steps_);
    }
    for (size_t k = 0; k < items.size(); ++k) {
      store(pieces[k], items[k], kept[k]);
      hint(shards_[pieces[k].shard], pieces[k], &parallel::PartMemory::let_go);
    }
  });
}

std::vector<checkpoint::Entry> Optimizer::entries_of(size_t shard, const HeldState& state,
                                                     size_t first) const {
  std::vector<checkpoint::Entry> entries;
  for (const HeldTensor& tensor : state.tensors) {
    checkpoint::Entry& entry =
        entries.emplace_back(checkpoint::Entry{.name = tensor.name + "." + shards_[shard].name,
                                               .layout = tensor.layout,
                                               .rank = shards_[shard].rank});
    store_->describe(first++, entry);
  }
  return entries;
}

std::vector<checkpoint::Entry> Optimizer::state() const {
  std::vector<checkpoint::Entry> entries;
  for (size_t i = 0; i < shards_.size(); ++i) {
    size_t next = states_[i].first_tensor;
    for (const HeldState& state : states_[i].states) {
      std::ranges::move(entries_of(i, state, next), std::back_inserter(entries));
      next += state.tensors.size();
    }
  }
  return entries;
}

namespace {

// Memory for a state in the format that a checkpoint has, and how to go on from it.
struct SavedState {
  HeldState state;
  std::vector<at::Tensor> tensors;
  HeldState kept;
  std::vector<checkpoint::Entry> to;
};

HeldState saved_state(const StateSpec& spec, const parallel::Shard& shard, StateDtype format,
                      at::ScalarType wide) {
  try {
    return held_state(spec, shard, format, wide);
  } catch (const ConfigError&) {
    throw CheckpointError(concat("the checkpoint's states are int8, and this layout cuts ",
                                 shown(shard.name),
                                 " within their blocks; resume for a step at the layout before, "
                                 "with another optimizer.state_dtype"));
  }
}

void convert(const SavedState& from, const parallel::Shard& shard, at::ScalarType wide) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (const checkpoint::Entry& entry : from.to) {
    kept.push_back(entry.offloaded
                       ? at::empty(entry.local.sizes(), at::dtype(entry.local.scalar_type()))
                       : entry.local);
  }
  const at::Tensor values = widened(from.state, from.tensors, wide).to(kept[0].device());
  narrow(from.kept, values, kept, [&](const at::Tensor& exact, const at::Tensor& rounded) {
    round_part(shard, exact, rounded, 0, random_key(0, "loading/" + from.to[0].name));
  });
  for (size_t k = 0; k < kept.size(); ++k) {
    if (from.to[k].offloaded) from.to[k].offloaded->write(kept[k]);
  }
}

}  // namespace

Optimizer::StatesToLoad Optimizer::state_from(
    const std::function<std::optional<at::ScalarType>(const std::string& name)>& saved) {
  StatesToLoad load;
  const auto conversions = std::make_shared<std::vector<std::pair<size_t, SavedState>>>();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const parallel::Shard& shard = shards_[i];
    const at::ScalarType wide = update_dtype(shard);
    size_t next = states_[i].first_tensor;
    for (const HeldState& kept : states_[i].states) {
      std::vector<checkpoint::Entry> entries = entries_of(i, kept, next);
      next += kept.tensors.size();
      const bool is_master = states_[i].has_master && &kept == &states_[i].states.back();
      const auto dtype = saved(entries.front().name);
      const StateDtype format = dtype ? format_of(*dtype) : kept.format;
      if (is_master || format == kept.format) {
        std::ranges::move(entries, std::back_inserter(load.entries));
        continue;
      }
      StateSpec spec{kept.tensors[0].name, kept.tensors[0].local_shape, kept.tensors[0].layout,
                     kept.is_positive};
      SavedState from{saved_state(spec, shard, format, wide), {}, kept, std::move(entries)};
      for (const HeldTensor& tensor : from.state.tensors) {
        from.tensors.push_back(at::empty(tensor.local_shape, at::dtype(tensor.dtype)));
        load.entries.push_back({.name = tensor.name + "." + shard.name,
                                .local = from.tensors.back(),
                                .layout = tensor.layout,
                                .rank = shard.rank});
      }
      conversions->emplace_back(i, std::move(from));
    }
  }
  load.finish = [this, conversions] {
    for (auto& [shard, from] : *conversions) {
      convert(from, shards_[shard], update_dtype(shards_[shard]));
      from.tensors.clear();
    }
  };
  return load;
}

}  // namespace trireme::train
