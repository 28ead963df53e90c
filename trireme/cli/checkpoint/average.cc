// trireme checkpoint average.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/checkpoint_average.h"

namespace trireme::cli {
namespace {

struct AverageArguments {
  std::vector<std::string> paths;
  std::string output;
  double decay = train::CheckpointAverageOptions{}.decay;
  bool json = false;
};

int average(const AverageArguments& arguments, const train::Offer& offer) {
  const std::vector<std::filesystem::path> paths(arguments.paths.begin(), arguments.paths.end());
  train::CheckpointAverageOptions options{.decay = arguments.decay};
  train::CheckpointAverage done;
  {
    ProgressBar bar("average");
    if (!arguments.json)
      options.on_progress = [&bar](int64_t bytes, int64_t total) { bar.update(bytes, total); };
    done = train::average_checkpoints(paths, arguments.output, offer, options);
  }
  if (arguments.json) {
    nlohmann::json object = {{"path", arguments.output},
                             {"step", done.step},
                             {"checkpoints", nlohmann::json::array()},
                             {"averaged", done.num_averaged},
                             {"from_the_last", done.num_taken}};
    for (size_t i = 0; i < done.checkpoints.size(); ++i) {
      object["checkpoints"].push_back(
          {{"path", done.checkpoints[i].string()}, {"weight", done.weights[i]}});
    }
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  for (size_t i = 0; i < done.checkpoints.size(); ++i) {
    std::printf("read   %s: weight %.4g\n", printable(done.checkpoints[i].string()).c_str(),
                done.weights[i]);
  }
  std::printf("wrote  %s: step %lld, %lld tensors averaged, %lld from the last checkpoint\n",
              printable(arguments.output).c_str(), static_cast<long long>(done.step),
              static_cast<long long>(done.num_averaged), static_cast<long long>(done.num_taken));
  return kDone;
}

}  // namespace

void add_checkpoint_average(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<AverageArguments>();
  CLI::App* command = group.add_subcommand(
      "average",
      "Average the weights of several checkpoints of a model into a new run. The average often\n"
      "generalises better than the last checkpoint.\n"
      "  trireme checkpoint average runs/demo/checkpoints/step-* --output runs/averaged\n"
      "  trireme generate --checkpoint runs/averaged --prompt 'def '\n"
      "Weights and fp32 master weights are averaged in fp64. Everything else, such as\n"
      "optimizer states and the step, is taken from the last checkpoint, so training can\n"
      "continue. The checkpoints are not changed. See docs/guide/checkpoints.md.\n");
  command
      ->add_option("paths", arguments->paths,
                   "two or more run folders or checkpoints, oldest first")
      ->required();
  add_new_run(*command, arguments->output);
  command
      ->add_option("--decay", arguments->decay,
                   "weight of a checkpoint relative to the next one; 1 = equal weights")
      ->check(within({.minimum = 0, .maximum = 1, .above_minimum = true}));
  add_json(*command, arguments->json);
  command->callback([arguments, offer, &exit_code] { exit_code = average(*arguments, offer); });
}

}  // namespace trireme::cli
