#include "trireme/cli/predict/answering_ranks.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/cli/predict/batch_text.h"
#include "trireme/comm/objects.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

constexpr std::array<std::string_view, 2> kCopyAxes = {"data", "shard"};
constexpr size_t kMostBytes = size_t{1} << 30;  // of a text, see comm/objects.h

// Before weights are allocated, because the numbers come from a file.
const train::RunConfig& with_room(const train::RunConfig& config, int num_ranks) {
  const auto bytes = static_cast<double>(config.task->model().traits().num_parameters) *
                     static_cast<double>(c10::elementSize(config.dtype())) / num_ranks;
  const auto available = static_cast<double>(machine_memory_bytes());
  TRIREME_CHECK(bytes <= available, "the model of ", config.init.folder, " has weights of ", bytes,
                " bytes for each of ", num_ranks, " ranks, and this machine a memory of ",
                available, "; use more ranks, or machines with more");
  return config;
}

// The rank of each copy whose outputs count.
std::vector<size_t> speakers_of(const mesh::DeviceMesh& mesh) {
  const bool speaks =
      mesh.coordinate("pipeline") == mesh.size("pipeline") - 1 && mesh.coordinate("tensor") == 0;
  const mesh::Position copy = mesh.position(kCopyAxes);
  std::vector<size_t> speakers(static_cast<size_t>(copy.count));
  const std::vector<int64_t> said =
      comm::all_gather_numbers(mesh.world(), speaks ? copy.index : -1);
  for (size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank] >= 0) speakers[static_cast<size_t>(said[rank])] = rank;
  }
  return speakers;
}

}  // namespace

AnsweringRanks::AnsweringRanks(const train::RunConfig& config, comm::Communicator& world,
                               train::Weights weights)
    : world_(world),
      mesh_(world, train::mesh_axes(config.parallel)),
      model_(with_room(config, world.size()), mesh_),
      speakers_(speakers_of(mesh_)),
      copy_(static_cast<size_t>(mesh_.position(kCopyAxes).index)) {
  if (!config.init.folder.empty()) model_.load("RUN", weights);
}

std::vector<at::Tensor> AnsweringRanks::outputs(std::span<const dataset::Batch> batches) {
  TRIREME_ASSERT(!batches.empty() && batches.size() <= num_copies(), batches.size(),
                 " batches for ", num_copies(), " copies");
  std::vector<dataset::NamedTensors> tensors;
  for (const dataset::Batch& batch : batches) tensors.push_back(batch.tensors);
  const std::string text = to_text(tensors);
  TRIREME_CHECK(text.size() < kMostBytes, "--batch ", batches.front().size(), " gives ",
                batches.size(), " batches of together ", text.size(),
                " bytes; expected less than 1 GiB; lower --batch");
  comm::broadcast_string(world_, text, 0);
  return answer(tensors);
}

void AnsweringRanks::finish() { comm::broadcast_string(world_, "", 0); }

void AnsweringRanks::serve() {
  while (true) {
    const std::string text = comm::broadcast_string(world_, "", 0);
    if (text.empty()) return;
    answer(from_text(text));
  }
}

// Copies may have to compute in step, as when they share tables. One without a batch of its own
// answers the first, and nobody reads it.
std::vector<at::Tensor> AnsweringRanks::answer(std::span<const dataset::NamedTensors> batches) {
  const bool has_own = copy_ < batches.size();
  dataset::Batch batch{.tensors = batches[has_own ? copy_ : 0]};
  batch.step_size = batch.size();
  auto found = model_.model().outputs({batch});
  std::string mine;
  if (has_own && speakers_[copy_] == static_cast<size_t>(world_.rank())) {
    const dataset::NamedTensors scores{{"scores", found.at("scores").front().to(at::kCPU)}};
    mine = to_text({&scores, 1});
  }
  const std::vector<std::string> said = comm::gather_strings(world_, mine, 0);
  std::vector<at::Tensor> outputs;
  for (size_t copy = 0; !said.empty() && copy < batches.size(); ++copy)
    outputs.push_back(from_text(said[speakers_[copy]]).at(0).at(0).second);
  return outputs;
}

}  // namespace trireme::cli
