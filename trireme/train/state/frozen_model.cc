#include "trireme/train/state/frozen_model.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/state/initial_weights.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {

FrozenModel::FrozenModel(RunConfig config, const mesh::DeviceMesh& mesh,
                         std::shared_ptr<const bool> overlap)
    : config_(std::move(config)), model_(config_, mesh, /*hook=*/nullptr, std::move(overlap)) {}

void FrozenModel::load(const std::string& key, Weights weights, const checkpoint::OnWait& on_wait) {
  const std::filesystem::path folder = config_.init.folder;
  comm::Communicator& world = model_.mesh().world();
  const OpenWeights open = [&] { return config_.task->open_weights(folder); };
  const std::string is_foreign = checkpoint::from_root(
      world, [&](const checkpoint::Peers&) { return std::string(open() ? "yes" : ""); }, on_wait);
  InitialWeights wanted{.key = key};
  // Of an average, the checkpoint also has the weights that it is of; and rows are read below.
  if (weights == Weights::kAverage || !model_.tables().empty()) wanted.unread = "*";
  for (const parallel::Shard& shard : model_.shards()) {
    wanted.weights.push_back(
        {tensor_of(shard.name, weights), shard.weights, shard.layout, shard.rank});
  }
  std::ranges::move(whole_entries(model_.buffers()), std::back_inserter(wanted.weights));
  const std::vector<checkpoint::Entry> entries = wanted.weights;
  load_initial_weights(folder, config_.init, std::move(wanted), world, on_wait,
                       is_foreign.empty() ? OpenWeights() : open);
  const auto check = [&](const checkpoint::Peers&) {
    for (const checkpoint::Entry& entry : entries) {
      if (!is_finite(entry.local)) require_finite(entry.local, entry.name, folder);
    }
  };
  checkpoint::run_or_throw(world, check, on_wait);
  model_.spread_weights();
  for (const StageTables& each : model_.tables())
    SavedModel(folder, Weights::kLast).load(*each.tables, world);
}

std::vector<std::string> notes_of_teacher(const RunConfig& teacher) {
  std::vector<std::string> notes =
      teacher.task->notes_on_weights(teacher.init.folder, teacher.dtype());
  for (std::string& note : notes) note = "teacher: " + note;
  notes.insert(notes.begin(), concat("teacher: ", teacher.task->model().traits().name,
                                     ", frozen, of ", teacher.init.folder));
  return notes;
}

}  // namespace trireme::train
