#include "trireme/train/callbacks/gradient_record.h"

#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/replicas_differ.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {

std::filesystem::path folder_of_learner(const std::filesystem::path& run, int64_t learner) {
  return run / kLearnersFolder / std::to_string(learner);
}

std::filesystem::path record_folder(const std::filesystem::path& run, std::optional<int> learner) {
  return learner ? folder_of_learner(run, *learner) : run;
}

void GradientRecord::check(const RunConfig& /*config*/,
                           std::span<const std::string> /*metrics*/) const {
  TRIREME_CHECK(config_.gradients > 0 || !config_.end,
                "record.end is true, but record.gradients is 0; expected the number of steps to "
                "record");
}

void GradientRecord::on_gradients(RunView& run) {
  const double factor = run.gradient_factor();
  std::vector<checkpoint::Entry> entries;
  for (const parallel::Shard& shard : run.shards()) {
    if (!shard.gradient.defined()) continue;
    const at::Tensor values = factor == 1 ? shard.gradient : shard.gradient * factor;
    entries.push_back({shard.name, values.detach(), shard.layout, shard.rank});
  }
  const std::span<const std::string> names = run.parameter_names();
  nlohmann::json state = {
      {kRecordedParameters, std::vector<std::string>(names.begin(), names.end())}};
  if (run.learner()) {  // metrics.jsonl has those of the first
    state[kRecordedNumbers] = {{"loss", run.metrics().loss},
                               {"grad_norm", run.metrics().grad_norm}};
  }
  // Not synced: no run goes on from a record, and one that a power failure damages is refused.
  checkpoint::SaveOptions options{.keep = 0, .fsync = false, .incremental = false};
  const auto save = [&] {
    checkpoint::save(record_folder(run.folder(), run.learner()) / kGradientFolder,
                     run.metrics().step, entries, state.dump(), run.world(), options);
  };
  try {
    save();
  } catch (const Error& error) {
    // All ranks have found the same.
    const std::optional<ReplicasDiffer> found = parse_replicas_differ(error.what());
    if (!found) throw;
    state[kDifferingGradients][found->tensor] = {
        {"ranks", found->ranks}, {"absolute", nullptr}, {"relative", nullptr}};
    options.compare_replicas = false;
    save();
  }
}

void GradientRecord::on_step(RunView& run) {
  if (!config_.end || run.step() < config_.gradients) return;
  run.stop(concat("record.end: the gradients of ", config_.gradients, " steps are kept"),
           /*for_good=*/false);
}

}  // namespace trireme::train
