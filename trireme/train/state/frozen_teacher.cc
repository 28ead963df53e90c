#include "trireme/train/state/frozen_teacher.h"

#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/initial_weights.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

RunConfig required_teacher(const RunConfig& config) {
  std::optional<RunConfig> teacher = teacher_config(config);
  TRIREME_ASSERT(teacher.has_value(), "a run without a teacher");
  return *std::move(teacher);
}

}  // namespace

FrozenTeacher::FrozenTeacher(const RunConfig& config, const mesh::DeviceMesh& mesh,
                             std::shared_ptr<const bool> overlap)
    : config_(required_teacher(config)),
      model_(config_, mesh, /*hook=*/nullptr, std::move(overlap)) {}

void FrozenTeacher::load(const checkpoint::OnWait& on_wait) {
  const std::filesystem::path folder = config_.init.folder;
  comm::Communicator& world = model_.mesh().world();
  const OpenWeights open = [&] { return config_.task->open_weights(folder); };
  const std::string is_foreign = checkpoint::from_root(
      world, [&](const checkpoint::Peers&) { return std::string(open() ? "yes" : ""); }, on_wait);
  InitialWeights wanted{.key = config_.task->traits().teacher_key};
  for (const parallel::Shard& shard : model_.shards()) {
    wanted.weights.push_back({shard.name, shard.weights, shard.layout, shard.rank});
  }
  std::ranges::move(whole_entries(model_.buffers()), std::back_inserter(wanted.weights));
  load_initial_weights(folder, config_.init, std::move(wanted), world, on_wait,
                       is_foreign.empty() ? OpenWeights() : open);
  model_.spread_weights();
}

std::vector<std::string> FrozenTeacher::notes() const {
  std::vector<std::string> notes =
      config_.task->notes_on_weights(config_.init.folder, config_.dtype());
  for (std::string& note : notes) note = "teacher: " + note;
  notes.insert(notes.begin(),
               concat("teacher: ", model_.traits().name, ", frozen, of ", config_.init.folder));
  return notes;
}

}  // namespace trireme::train
