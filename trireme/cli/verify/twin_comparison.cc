#include "trireme/cli/verify/twin_comparison.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/cli/console.h"
#include "trireme/verify/learner_comparison.h"
#include "trireme/verify/learner_tensors.h"

namespace trireme::cli {
namespace {

// learner: of all runs; unset: they have none
verify::Comparison compare_one(std::span<const TwinRun> twins, std::optional<int> learner,
                               Tier tier, const verify::OnCompared& on_progress) {
  std::vector<std::unique_ptr<const verify::RecordedRun>> runs;
  for (const TwinRun& twin : twins) {
    runs.push_back(std::make_unique<const verify::RecordedRun>(twin.folder, learner));
  }
  if (tier == Tier::kFp64)
    return verify::compare({*runs[0], *runs[1]}, {*runs[2], *runs[3]}, on_progress);
  std::vector<const verify::RecordedRun*> perturbed;
  for (size_t i = 2; i < runs.size(); ++i) perturbed.push_back(runs[i].get());
  return verify::compare_by_bound({*runs[0], *runs[1]}, perturbed, on_progress);
}

}  // namespace

verify::Comparison compare_twins(std::span<const TwinRun> twins, Tier tier, TellProgress tells) {
  ProgressBar bar("compare", "steps");
  const int learners = verify::num_learners(twins.front().folder);
  const auto compare = [&](std::optional<int> learner) {
    return compare_one(twins, learner, tier, [&](int64_t done, int64_t total) {
      if (tells == TellProgress::kYes)
        bar.update(learner.value_or(0) * total + done, std::max(1, learners) * total);
    });
  };
  if (learners == 0) return compare(std::nullopt);
  std::vector<verify::Comparison> all;
  for (int learner = 0; learner < learners; ++learner) all.push_back(compare(learner));
  return verify::joined(std::move(all));
}

}  // namespace trireme::cli
