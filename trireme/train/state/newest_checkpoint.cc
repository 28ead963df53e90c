#include "trireme/train/state/newest_checkpoint.h"

#include <algorithm>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// All checkpoints, the best one last.
std::vector<fs::path> by_preference(const fs::path& root, std::span<const FastCheckpoint> fast) {
  const auto step_of = [](const fs::path& folder) {
    return checkpoint::step_of(folder.filename().string());
  };
  std::vector<fs::path> folders = checkpoint::list(root);
  // The last one is of the newest epoch. A later step of an earlier epoch was saved by ranks that
  // had been paused when the newer one began.
  if (!folders.empty()) {
    const int64_t newest = step_of(folders.back());
    std::erase_if(folders, [&](const fs::path& folder) { return step_of(folder) > newest; });
  }
  for (auto each = fast.rbegin(); each != fast.rend(); ++each) folders.push_back(each->folder);
  std::ranges::stable_sort(folders, {}, step_of);
  return folders;
}

// Describes the checkpoint of each place, for the user: "memory: step 48, 3 s old: used".
std::vector<std::string> describe_places(const fs::path& root, std::span<const FastCheckpoint> fast,
                                         const fs::path& chosen) {
  const auto note = [&](const std::string& place, const fs::path& folder, int64_t age) {
    const int64_t step = checkpoint::step_of(folder.filename().string());
    const int64_t best = checkpoint::step_of(chosen.filename().string());
    return concat("checkpoint in ", place, ": step ", step, ", ", age, " s old: ",
                  folder == chosen ? "used"
                  : step < best    ? "older"
                  : step == best   ? "slower to read"
                                   : "damaged");
  };
  std::vector<std::string> notes;
  for (const FastCheckpoint& each : fast)
    notes.push_back(note(each.place, each.folder, each.age.count()));
  if (const auto newest = checkpoint::latest(root); newest && !fast.empty())
    notes.push_back(note(root.string(), *newest, checkpoint::age_of(*newest).count()));
  return notes;
}

}  // namespace

NewestCheckpoint newest_checkpoint(const fs::path& root, const DamagedCheckpoints& damaged,
                                   std::span<const FastCheckpoint> fast) {
  NewestCheckpoint found;
  std::vector<fs::path> folders = by_preference(root, fast);
  std::string newest_problem;
  for (; !folders.empty(); folders.pop_back()) {
    const fs::path& folder = folders.back();
    std::string problem;
    if (const auto known = damaged.find(folder); known != damaged.end()) {
      problem = known->second;
    } else {
      try {
        found.summary = checkpoint::inspect(folder);
        found.path = folder;
        std::ranges::move(describe_places(root, fast, folder), std::back_inserter(found.notes));
        return found;
      } catch (const CheckpointError& error) {
        problem = error.what();
      }
    }
    found.notes.push_back(
        concat("DAMAGED: ", problem, "; an earlier checkpoint is used, and this one is left out"));
    if (newest_problem.empty()) newest_problem = problem;
  }
  if (newest_problem.empty()) return found;
  throw CheckpointError(concat(newest_problem, found.notes.size() > 1
                                                   ? "; all earlier checkpoints are damaged too"
                                                   : "; there is no earlier checkpoint"));
}

}  // namespace trireme::train
