#include "trireme/train/parallel/gradient_compression.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/data/compression/adasum_hook.h"
#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/narrow_hooks.h"
#include "trireme/parallel/data/compression/sign_hook.h"
#include "trireme/parallel/data/tree_sum.h"
#include "trireme/train/optimizer/sign_schedule.h"

namespace trireme::train {
namespace {

std::shared_ptr<parallel::GradientHook> make_rule(const TrainConfig& train) {
  using parallel::Compression;
  switch (train.compression) {
    case Compression::kNone: return nullptr;
    case Compression::kBf16: return std::make_shared<parallel::CastHook>(at::kBFloat16);
    case Compression::kFp16: return std::make_shared<parallel::CastHook>(at::kHalf);
    case Compression::kInt8: return std::make_shared<parallel::Int8Hook>();
    case Compression::kPowerSgd:
      return std::make_shared<parallel::PowerSgdHook>(
          parallel::PowerSgdOptions{.rank = train.compression_rank, .seed = train.seed});
    case Compression::kTopK: return std::make_shared<parallel::TopKHook>(train.compression_ratio);
  }
  throw InternalError("unknown Compression");
}

std::shared_ptr<parallel::GradientHook> make_sign_hook(const OptimizerConfig& optimizer,
                                                       OptimizerView view) {
  const bool has_momentum = signs_of(optimizer) == SignsOf::kMomentum;
  return std::make_shared<parallel::SignHook>(parallel::SignHookOptions{
      .beta = has_momentum ? optimizer.beta1 : 0,
      .sends_signs =
          [optimizer, num_updates = std::move(view.num_updates)] {
            return num_updates && !is_plain_update(optimizer, num_updates() + 1);
          },
      .find_momentum = std::move(view.find_momentum)});
}

// A tensor of its own on each of the ranks that sum the gradient.
checkpoint::Entry entry_of_each(const std::string& name, const parallel::HookState& state,
                                const mesh::Layout& place, int rank_in_place) {
  std::vector<int64_t> shape = place.shape();
  std::vector<mesh::Axis> axes = place.axes();
  std::vector<mesh::Placement> placements = place.placements();
  for (mesh::Placement& placement : placements) {
    if (placement.kind == mesh::Placement::Kind::kSharded) ++placement.dim;
  }
  shape.insert(shape.begin(), state.num_ranks);
  axes.insert(axes.begin(), {"data", state.num_ranks});
  placements.insert(placements.begin(), mesh::Placement::sharded(0));
  return {.name = name,
          .local = state.tensor.unsqueeze(0),
          .layout = mesh::Layout(std::move(shape), std::move(axes), std::move(placements)),
          .rank = state.rank * place.num_ranks() + rank_in_place};
}

// One tensor of all of them.
checkpoint::Entry entry_of_all(std::string name, const parallel::HookState& state,
                               const mesh::Layout& place, int rank_in_place) {
  if (place.local_box(rank_in_place).size != place.shape()) {
    name += concat("@", place.owner(rank_in_place));
  }
  std::vector<int64_t> shape = state.tensor.sizes().vec();
  shape[0] = state.cuts.back();
  return {.name = std::move(name),
          .local = state.tensor,
          .layout = mesh::Layout(std::move(shape), {{"data", state.num_ranks}},
                                 {mesh::Placement::sharded(0, state.cuts)}),
          .rank = state.rank};
}

checkpoint::Entry entry_of(const parallel::HookState& state, const PlaceOf& place_of) {
  const std::string name = kCompressionPrefix + state.name;
  if (state.same_on_ranks) {
    return {.name = name,
            .local = state.tensor,
            .layout = mesh::Layout(state.tensor.sizes().vec(), {}),
            .rank = 0};
  }
  const auto [place, rank] = place_of(state.parameter);
  return state.cuts.empty() ? entry_of_each(name, state, place, rank)
                            : entry_of_all(name, state, place, rank);
}

// "error" of "compression.error.w".
std::string kind_of(const std::string& name) {
  const std::string state = name.substr(std::string_view(kCompressionPrefix).size());
  return state.substr(0, state.find('.'));
}

std::set<std::string> kinds_in(const checkpoint::Summary& saved) {
  std::set<std::string> kinds;
  for (const checkpoint::TensorSummary& tensor : saved.tensors) {
    if (tensor.name.starts_with(kCompressionPrefix)) kinds.insert(kind_of(tensor.name));
  }
  return kinds;
}

std::set<std::string> kinds_of(std::span<const checkpoint::Entry> entries) {
  std::set<std::string> kinds;
  for (const checkpoint::Entry& entry : entries) kinds.insert(kind_of(entry.name));
  return kinds;
}

// The entry for a tensor of `num_ranks` ranks, of which this one takes its share.
checkpoint::Entry shared_out(checkpoint::Entry entry, int64_t num_ranks) {
  const std::vector<mesh::Axis>& axes = entry.layout.axes();
  std::vector<int64_t> shape = entry.layout.shape();
  std::vector<mesh::Placement> placements = entry.layout.placements();
  shape[0] = num_ranks;
  placements[0] = mesh::Placement::sharded(0, parallel::even_cuts(num_ranks, axes[0].size));
  entry.layout = mesh::Layout(std::move(shape), axes, std::move(placements));
  entry.local = at::zeros(entry.layout.local_box(entry.rank).size, entry.local.options());
  return entry;
}

}  // namespace

std::shared_ptr<parallel::GradientHook> make_gradient_hook(const RunConfig& config,
                                                           OptimizerView optimizer) {
  const TrainConfig& train = config.train;
  if (signs_of(config.optimizer) != SignsOf::kNothing && !config.is_frozen) {
    return make_sign_hook(config.optimizer, std::move(optimizer));
  }
  if (train.gradient_sum == parallel::GradientSum::kAdasum) {
    return std::make_shared<parallel::AdasumHook>();
  }
  std::shared_ptr<parallel::GradientHook> rule = make_rule(train);
  if (rule == nullptr || train.compression_warmup == 0) return rule;
  return std::make_shared<parallel::WarmUpHook>(std::move(rule), train.compression_warmup);
}

bool copy_momentum(const Optimizer& optimizer, const std::string& parameter,
                   const at::Tensor& momentum) {
  const std::vector<checkpoint::Entry> states = optimizer.state();
  const auto state = std::ranges::find(states, "exp_avg." + parameter, &checkpoint::Entry::name);
  TRIREME_ASSERT(state != states.end(), "no momentum of ", parameter);
  const mesh::Box box = state->layout.local_box(state->rank);
  at::Tensor place = momentum.view(state->layout.shape());
  for (size_t dim = 0; dim < box.offset.size(); ++dim) {
    place = place.narrow(static_cast<int64_t>(dim), box.offset[dim], box.size[dim]);
  }
  place.copy_(state->offloaded ? state->offloaded->read() : state->local);
  return state->layout.num_ranks() == 1;
}

std::vector<checkpoint::Entry> compression_entries(const parallel::GradientHook* hook,
                                                   const PlaceOf& place_of) {
  std::vector<checkpoint::Entry> entries;
  if (hook == nullptr) return entries;
  for (const parallel::HookState& state : hook->state()) {
    entries.push_back(entry_of(state, place_of));
  }
  return entries;
}

CompressionLoad load_compression(const parallel::GradientHook* hook, const PlaceOf& place_of,
                                 const checkpoint::Summary& saved, comm::Communicator& world) {
  std::vector<checkpoint::Entry> entries = compression_entries(hook, place_of);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const checkpoint::TensorSummary& tensor : saved.tensors) shapes[tensor.name] = tensor.shape;
  const std::set<std::string> before = kinds_in(saved), now = kinds_of(entries);
  CompressionLoad load;
  std::vector<std::pair<at::Tensor, at::Tensor>> shares;  // residual, those that become it
  bool lacks_some = false;
  for (checkpoint::Entry& entry : entries) {
    const std::vector<int64_t>& wanted = entry.layout.shape();
    const auto found = shapes.find(entry.name);
    const bool has_ranks = kind_of(entry.name) == parallel::ErrorFeedback::kResidual;
    if (found == shapes.end() || found->second.size() != wanted.size() ||
        !std::equal(wanted.begin() + (has_ranks ? 1 : 0), wanted.end(),
                    found->second.begin() + (has_ranks ? 1 : 0))) {
      lacks_some = true;
    } else if (found->second == wanted) {
      load.entries.push_back(std::move(entry));
    } else {
      const at::Tensor residual = entry.local;
      load.entries.push_back(shared_out(std::move(entry), found->second[0]));
      shares.emplace_back(residual, load.entries.back().local);
    }
  }
  // A rank has no state where its stage of the model is frozen. The others know the rule.
  constexpr int64_t kHasNone = 0, kFits = 1, kLacksSome = 2, kIsOther = 3;
  const int64_t mine = now.empty()     ? kHasNone
                       : before != now ? kIsOther
                       : lacks_some    ? kLacksSome
                                       : kFits;
  int64_t worst = std::ranges::max(comm::all_gather_numbers(world, mine));
  if (worst == kHasNone) worst = before.empty() ? kFits : kIsOther;
  load.restarted = worst != kFits;
  if (worst == kIsOther) {
    load.entries.clear();
    return load;
  }
  load.finish = [shares = std::move(shares)] {
    for (const auto& [residual, share] : shares) residual.copy_(share.sum(0, /*keepdim=*/true));
  };
  return load;
}

void restart_compression(const parallel::GradientHook* hook, const TrainConfig& train,
                         int64_t step) {
  if (hook == nullptr) return;
  for (const parallel::HookState& state : hook->state()) {
    if (state.name != parallel::WarmUpHook::kStepsLeft) continue;
    state.tensor.fill_(std::max<int64_t>(0, train.compression_warmup - step));
  }
}

int64_t compression_bytes(const parallel::GradientHook* hook) {
  int64_t num_bytes = 0;
  if (hook == nullptr) return num_bytes;
  for (const parallel::HookState& state : hook->state()) {
    num_bytes += static_cast<int64_t>(state.tensor.nbytes());
  }
  return num_bytes;
}

}  // namespace trireme::train
