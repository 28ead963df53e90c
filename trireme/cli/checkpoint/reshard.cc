// trireme checkpoint reshard.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/checkpoint/offline/reshard.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/number_range.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/progress_bar.h"
#include "trireme/train/derived_run.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/state/state.h"

namespace trireme::cli::inline internal {
namespace {

struct ReshardArguments {
  std::string path;
  std::string output;
  int ranks = 0;
  bool json = false;
};

int reshard(const ReshardArguments& arguments, const train::Offer& offer) {
  const std::filesystem::path folder = train::find_checkpoint(arguments.path);
  const checkpoint::SavedTensors source(folder);
  const std::string where = folder.string();
  const train::RunState state = train::parse_state(source.state(), where, source.step());
  const train::RunConfig config =
      train::derived_config(state.config, where, offer, arguments.output);
  train::DerivedRun run(folder, arguments.output);
  {
    ProgressBar bar("reshard");
    checkpoint::OnProgress on_progress;
    if (!arguments.json)
      on_progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    checkpoint::reshard(source, run.checkpoints(), arguments.ranks, on_progress);
  }
  run.commit(train::to_toml(config));
  const int64_t num_bytes = checkpoint::num_bytes(source);
  if (arguments.json) {
    const nlohmann::json object = {{"path", arguments.output}, {"checkpoint", where},
                                   {"step", source.step()},    {"ranks_before", source.num_ranks()},
                                   {"ranks", arguments.ranks}, {"tensors", source.tensors().size()},
                                   {"bytes", num_bytes}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("read   %s: step %lld, saved by %d ranks\n", printable(where).c_str(),
              static_cast<long long>(source.step()), source.num_ranks());
  std::printf("wrote  %s: %zu tensors, %s, as of %d ranks\n", printable(arguments.output).c_str(),
              source.tensors().size(), human_bytes(static_cast<double>(num_bytes)).c_str(),
              arguments.ranks);
  return kDone;
}

}  // namespace

void add_checkpoint_reshard(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<ReshardArguments>();
  CLI::App* command = group.add_subcommand(
      "reshard",
      "Write a checkpoint again as another number of ranks would save it, into a new run.\n"
      "  trireme checkpoint reshard runs/demo --output runs/demo-8 --ranks 8\n"
      "  trireme train runs/demo-8/config.toml --ranks 8\n"
      "A checkpoint loads at any layout without this. It makes the start faster when each of many\n"
      "ranks then reads a file of its own, or a single file where many were. Every checksum is\n"
      "compared, and every bit stays. See docs/checkpoints.md.\n");
  command->add_option("path", arguments->path, "a run's folder, or one checkpoint of it")
      ->required();
  command->add_option("--output", arguments->output, "the new run's folder; new or empty")
      ->required();
  command->add_option("--ranks", arguments->ranks, "how many files to cut the tensors into")
      ->required()
      ->check(within({.minimum = 1, .maximum = checkpoint::kMaxReshardRanks}));
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments, offer, &exit_code] { exit_code = reshard(*arguments, offer); });
}

}  // namespace trireme::cli::inline internal
