// trireme checkpoint upcycle.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/tasks/language/upcycle.h"

namespace trireme::cli {
namespace {

struct UpcycleArguments {
  std::string path;
  std::string output;
  double noise = 0;
  std::vector<std::string> overrides;  // as typed
};

int upcycle_checkpoint(const UpcycleArguments& arguments) {
  const std::vector<train::Override> overrides = parse_overrides(arguments.overrides);
  const tasks::Upcycled done =
      tasks::upcycle(arguments.path, arguments.output, {overrides, arguments.noise});
  std::printf("read   %s: step %lld, %s parameters\n", printable(done.checkpoint.string()).c_str(),
              static_cast<long long>(done.step),
              human_count(static_cast<double>(done.dense_parameters)).c_str());
  std::printf("wrote  %s: %lld blocks with %lld experts, %s parameters\n",
              printable(arguments.output).c_str(), static_cast<long long>(done.sparse_blocks),
              static_cast<long long>(done.experts),
              human_count(static_cast<double>(done.parameters)).c_str());
  std::printf("go on  trireme train %s/config.toml --train.steps=%lld\n",
              printable(arguments.output).c_str(), static_cast<long long>(2 * done.step));
  return kDone;
}

}  // namespace

void add_upcycle(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<UpcycleArguments>();
  CLI::App* command =
      app.get_subcommand("checkpoint")
          ->add_subcommand(
              "upcycle",
              "Turn a dense model into a mixture of experts. Every expert starts as a copy of\n"
              "the feed-forward, so training continues from the dense model's loss.\n"
              "  trireme checkpoint upcycle runs/demo --output runs/sparse --model.experts=8\n"
              "  trireme train runs/sparse/config.toml --ranks 2 --train.steps=600\n"
              "Keys of the new run are given as for `trireme train`. The dense run is not\n"
              "changed. See docs/guide/experts.md.\n");
  add_checkpoint_path(*command, arguments->path);
  add_new_run(*command, arguments->output);
  command
      ->add_option("--noise", arguments->noise,
                   "noise added to each expert's weights, as a fraction of their standard "
                   "deviation, such as 0.01; 0 = start from the dense model's loss")
      ->check(CLI::Range(0.0, 1e3));
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = upcycle_checkpoint(*arguments);
  });
}

}  // namespace trireme::cli
