#include "trireme/train/parallel/gradient_compression.h"

#include <algorithm>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/narrow_hooks.h"

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

bool is_same(const checkpoint::Summary& saved, std::span<const checkpoint::Entry> entries) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const checkpoint::TensorSummary& tensor : saved.tensors) {
    if (tensor.name.starts_with(kCompressionPrefix)) shapes[tensor.name] = tensor.shape;
  }
  return shapes.size() == entries.size() &&
         std::ranges::all_of(entries, [&](const checkpoint::Entry& entry) {
           const auto found = shapes.find(entry.name);
           return found != shapes.end() && found->second == entry.layout.shape();
         });
}

}  // namespace

std::shared_ptr<parallel::GradientHook> make_gradient_hook(const TrainConfig& train) {
  std::shared_ptr<parallel::GradientHook> rule = make_rule(train);
  if (rule == nullptr || train.compression_warmup == 0) return rule;
  return std::make_shared<parallel::WarmUpHook>(std::move(rule), train.compression_warmup);
}

std::vector<checkpoint::Entry> compression_entries(const parallel::GradientHook* hook,
                                                   std::span<const mesh::Axis> axes) {
  std::vector<checkpoint::Entry> entries;
  if (hook == nullptr) return entries;
  const std::vector<mesh::Axis> all_axes(axes.begin(), axes.end());
  int64_t num_ranks = 1;
  for (const mesh::Axis& axis : axes) num_ranks *= axis.size;
  for (const parallel::HookState& state : hook->state()) {
    const std::string name = kCompressionPrefix + state.name;
    std::vector<int64_t> shape = state.tensor.sizes().vec();
    if (state.same_on_ranks) {
      entries.push_back({name, state.tensor, mesh::Layout(std::move(shape), all_axes)});
      continue;
    }
    shape.insert(shape.begin(), num_ranks);
    const std::vector<mesh::Placement> placements(axes.size(), mesh::Placement::sharded(0));
    entries.push_back(
        {name, state.tensor.unsqueeze(0), mesh::Layout(std::move(shape), all_axes, placements)});
  }
  return entries;
}

bool has_compression_state(const checkpoint::Summary& checkpoint,
                           std::span<const checkpoint::Entry> entries, comm::Communicator& world) {
  const std::vector<int64_t> answers =
      comm::all_gather_numbers(world, is_same(checkpoint, entries) ? 1 : 0);
  return std::ranges::count(answers, 0) == 0;
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
