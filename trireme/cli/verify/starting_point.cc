#include "trireme/cli/verify/starting_point.h"

#include <algorithm>
#include <ranges>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/state/derived_run.h"
#include "trireme/train/state/run_state.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

void check_without(bool has, const char* key, const fs::path& run) {
  TRIREME_CHECK(!has, run.string(), " is a run with ", key,
                ", whose ranks do not take their steps together; expected one without");
}

// Fp32 in runs of every precision: the biases of routers, and counts of rows of open tables.
bool keeps_dtype(const std::string& name) {
  return name.ends_with("e_score_correction_bias") || name.ends_with(".uses");
}

// As the source has it, but for the tensors of `from`, which become those of `to`.
void save_in(const checkpoint::SavedTensors& source, const fs::path& root, at::ScalarType from,
             at::ScalarType to) {
  std::vector<checkpoint::Entry> entries;
  for (const auto& [name, tensor] : source.tensors()) {
    const at::Tensor values = source.read(name);
    const bool changes = values.scalar_type() == from && !keeps_dtype(name);
    entries.push_back(
        {name, changes ? values.to(to) : values, mesh::Layout(values.sizes().vec(), {})});
  }
  const auto world = std::move(comm::make_thread_group(1).front());
  checkpoint::save(root, source.step(), entries, source.state(), *world,
                   {.keep = 0, .fsync = false, .incremental = false});
}

}  // namespace

StartingPoint find_start(const fs::path& run, std::optional<int64_t> last_step,
                         const train::Offer& offer) {
  TRIREME_CHECK(fs::is_directory(run), run.string(), " is no folder; expected that of a run");
  const std::vector<fs::path> all = checkpoint::list(run / "checkpoints");
  TRIREME_CHECK(!all.empty(), run.string(),
                " has no checkpoint; expected the folder of a run with "
                "checkpoint.interval above 0");
  int64_t oldest = INT64_MAX;
  for (const fs::path& folder : std::views::reverse(all)) {
    const checkpoint::SavedTensors saved(folder);
    oldest = std::min(oldest, saved.step());
    if (last_step && saved.step() > *last_step) continue;
    const std::string toml =
        train::parse_state(saved.state(), folder.string(), saved.step()).config;
    StartingPoint start{.run = run,
                        .checkpoint = folder,
                        .step = saved.step(),
                        .num_ranks = saved.num_ranks(),
                        .config = train::derived_config(toml, folder.string(), offer, run)};
    check_without(start.config.parallel.servers > 0, "parallel.servers", run);
    check_without(start.config.parallel.staleness > 0, "parallel.staleness", run);
    return start;
  }
  throw ConfigError(concat(run.string(), " has no checkpoint of step ", *last_step,
                           " or before; its oldest is of step ", oldest,
                           ": expected a later step, or checkpoint.keep of more of them"));
}

void refuse_learners(const StartingPoint& start) {
  check_without(start.config.parallel.learners > 1, "parallel.learners", start.run);
}

void begin_at(const StartingPoint& start, const fs::path& folder, c10::ScalarType precision) {
  const c10::ScalarType own = start.config.train.precision;
  const bool can_change = own == c10::kFloat || own == c10::kDouble;
  TRIREME_CHECK(precision == own || can_change, start.run.string(), " is a run in ",
                c10::toString(own),
                "; expected one in fp32 or fp64, whose states another precision can hold, or "
                "--tier 3, which keeps the precision");
  train::DerivedRun made(start.checkpoint, folder);
  if (precision == own) {
    fs::create_directories(made.checkpoints());
    fs::create_directory_symlink(fs::canonical(start.checkpoint),
                                 made.checkpoints() / start.checkpoint.filename());
  } else {
    save_in(checkpoint::SavedTensors(start.checkpoint), made.checkpoints(), own, precision);
  }
  train::RunConfig config = start.config;
  config.output.folder = folder.string();
  made.commit(train::to_toml(config), config.task->traits().file_names);
}

std::vector<std::string> undisturbed_keys() {
  return {"--command.on_start=",
          "--command.on_evaluate=",
          "--command.on_step=",
          "--command.on_checkpoint=",
          "--command.on_stop=",
          "--checkpoint.store=",
          "--checkpoint.local=",
          "--checkpoint.share=",
          "--checkpoint.mode=sync",
          "--checkpoint.memory_interval=0",
          "--checkpoint.incremental=false"};
}

std::vector<std::string> plain_layout_keys() {
  std::vector<std::string> keys;
  for (const train::AxisKey& key : train::kAxisKeys) {
    keys.push_back(concat("--parallel.", key.axis, "=1"));
  }
  for (const char* key :
       {"data=0", "shard=0", "zero=0", "sequence_parallel=false", "stages_per_rank=0",
        "stage_layers=", "rebalance_interval=0", "expert_replicas=0", "schedule=1f1b", "auto=false",
        "teachers=0", "teacher_tensor=1"}) {
    keys.push_back(concat("--parallel.", key));
  }
  keys.emplace_back("--train.shares=");
  keys.emplace_back("--train.shares_interval=0");
  return keys;
}

}  // namespace trireme::cli
