// trireme data outputs: what the teacher of a distillation says of its data.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/bounds.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/tasks/language/recording/record_outputs.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/run/compute_device.h"

namespace trireme::cli {
namespace {

struct OutputsArguments {
  std::string config;  // "": defaults
  std::string init;
  std::string output;
  int64_t top_k = tasks::RecordOptions{}.top_k;
  int num_ranks = 1;
  int num_threads = 0;
  bool json = false;
  std::vector<std::string> overrides;  // as typed
};

train::RunConfig load_config(const OutputsArguments& arguments) {
  std::vector<train::Override> overrides = parse_overrides(arguments.overrides);
  train::RunConfig config =
      arguments.config.empty()
          ? train::parse_config("", "the default config", tasks::all_tasks(), overrides)
          : train::load_config(arguments.config, tasks::all_tasks(), overrides);
  // Where ranks record what they wait for, which goes at the end. The run's folder stays as it is.
  config.output.folder = arguments.output + ".ranks";
  return config;
}

int launch_outputs(const OutputsArguments& arguments) {
  launch::LocalRanksOptions options{.num_ranks = arguments.num_ranks,
                                    .command = {own_program(), "data", "outputs"}};
  if (!arguments.config.empty()) options.command.push_back(arguments.config);
  options.command.insert(
      options.command.end(),
      {"--output=" + arguments.output, "--top-k=" + std::to_string(arguments.top_k),
       "--threads=" + std::to_string(arguments.num_threads)});
  if (arguments.json) options.command.emplace_back("--json");
  options.command.insert(options.command.end(), arguments.overrides.begin(),
                         arguments.overrides.end());
  const launch::RankExit exit = launch::run_local_ranks(options);
  if (exit.rank < 0) return kDone;
  std::fprintf(stderr, "trireme: %s\n", printable(launch::describe(exit)).c_str());
  return exit.signal != 0 || exit.code == kPeerLost ? kPeerLost : exit.code;
}

void print_recorded(const OutputsArguments& arguments, const tasks::RecordedOutputs& done,
                    double seconds) {
  if (arguments.json) {
    const nlohmann::json object = {{"output", arguments.output},
                                   {"training_samples", done.num_training},
                                   {"validation_samples", done.num_validation},
                                   {"sequence_length", done.sequence_length},
                                   {"resumed_samples", done.num_resumed},
                                   {"top_k", arguments.top_k},
                                   {"vocab_size", done.vocab_size},
                                   {"bytes_written", done.num_bytes},
                                   {"seconds", seconds}};
    std::printf("%s\n", json_text(object).c_str());
    return;
  }
  std::printf("read    %s sequences of %lld tokens for training, %s for validation\n",
              human_count(static_cast<double>(done.num_training)).c_str(),
              static_cast<long long>(done.sequence_length),
              human_count(static_cast<double>(done.num_validation)).c_str());
  std::printf(
      "wrote   %s: %lld of %lld tokens for each, %s in %s\n", printable(arguments.output).c_str(),
      static_cast<long long>(arguments.top_k), static_cast<long long>(done.vocab_size),
      human_bytes(static_cast<double>(done.num_bytes)).c_str(), human_duration(seconds).c_str());
  if (done.num_resumed > 0) {
    std::printf("note    %s of the sequences had been read before this command was interrupted\n",
                human_count(static_cast<double>(done.num_resumed)).c_str());
  }
  std::printf("go on   trireme train ... --objective.teacher=%s\n",
              printable(arguments.output).c_str());
}

int record_with(const OutputsArguments& arguments, const train::RunConfig& given,
                RankGroup& group) {
  comm::Communicator& world = group.world();
  const bool is_root = world.rank() == 0;
  const auto start = std::chrono::steady_clock::now();
  train::RunConfig config;
  checkpoint::run_or_throw(world, [&](const checkpoint::Peers&) {
    config = tasks::recording_config(given, world.size(), arguments.top_k);
  });
  if (!config.device.is_cpu()) train::use_device(config);
  tasks::RecordedOutputs done;
  {
    ProgressBar bar("record", "sequences");
    tasks::RecordOptions options{.output = arguments.output, .top_k = arguments.top_k};
    options.tell = [&](const std::string& line) {
      if (is_root && !arguments.json) std::printf("%s\n", printable(line).c_str());
      std::fflush(stdout);
    };
    if (is_root) {
      options.on_progress = [&](int64_t read, int64_t total) { bar.update(read, total); };
    }
    done = tasks::record_outputs(config, world, options);
  }
  if (is_root) print_recorded(arguments, done, seconds_since(start));
  return kDone;
}

int record(const OutputsArguments& arguments) {
  train::RunConfig config = load_config(arguments);
  if (arguments.num_threads > 0) at::set_num_threads(arguments.num_threads);
  if (comm::is_launched()) {
    RankGroup group(config, comm::world_info());
    return record_with(arguments, config, group);
  }
  if (arguments.num_ranks > 1) {
    // A mistake costs one line here, before any rank starts.
    train::RunConfig checked = config;
    checked.device = train::rank_device(config.train.device, config.parallel.gpu_transport, 0,
                                        arguments.num_ranks);
    tasks::recording_config(std::move(checked), arguments.num_ranks, arguments.top_k);
    return launch_outputs(arguments);
  }
  RankGroup group(config);
  return record_with(arguments, config, group);
}

}  // namespace

void add_data_outputs(CLI::App& data, int& exit_code) {
  auto arguments = std::make_shared<OutputsArguments>();
  CLI::App* command = data.add_subcommand(
      "outputs",
      "Have the teacher of a distillation read its data once, and keep what it says of every\n"
      "token: its most probable next tokens with their log-probabilities. Training from the file\n"
      "has no teacher in memory and computes no teacher's forward. Keys are those of `trireme\n"
      "train`; ranks and axes are the teacher's own.\n"
      "  trireme data outputs distill.toml --ranks 4 --parallel.tensor=4 --output teacher.outputs\n"
      "  trireme train distill.toml --ranks 2 --objective.teacher=teacher.outputs\n"
      "See docs/guide/distillation.md.\n");
  command->add_option("config", arguments->config, "TOML file of the run");
  command->add_option("--output", arguments->output, "file to write")->required();
  command
      ->add_option("--top-k", arguments->top_k,
                   "number of tokens to keep for each token of the data; all others are one class")
      ->check(within({1, kMaxVocabulary}))
      ->capture_default_str();
  command->add_option("--ranks", arguments->num_ranks, "number of local ranks to start")
      ->check(within({1, 1 << 15}))
      ->capture_default_str();
  command->add_option("--threads", arguments->num_threads, "threads per rank; 0 = cores / ranks")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
  command->add_option("--init", arguments->init,
                      "the student, as `trireme train --init` takes it. Same as --init.folder");
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    if (!arguments->init.empty()) {
      arguments->overrides.push_back("--init.folder=" + arguments->init);
    }
    exit_code = record(*arguments);
  });
}

}  // namespace trireme::cli
