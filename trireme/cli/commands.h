// The commands of every program. Each adds itself to the parser and runs when it is chosen.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/dataset/conversation/prepare_chat.h"
#include "trireme/dataset/labelled/prepare_labelled.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/train/config/config.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// Exit codes, the same for every command.
enum ExitCode {
  kDone = 0,
  kBug = 1,                         // our bug, or anything unforeseen
  kDiffers = 1,                     // only of `checkpoint diff`, as of diff(1)
  kUserError = launch::kUserError,  // config, arguments, data
  kPeerLost = launch::kPeerLost,
  kBadCheckpoint = launch::kBadCheckpoint,
};

// Each keeps its options alive in the parser. The chosen one writes its result to `exit_code`.
// needs_config: refuse to start without a config file.
void add_train(CLI::App& app, int& exit_code, const train::Offer& offer, bool needs_config);
void add_predict(CLI::App& app, int& exit_code, const train::Offer& offer);
void add_checkpoint(CLI::App& app, int& exit_code, const train::Offer& offer);
// Subcommands of `checkpoint`.
void add_checkpoint_average(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_diff(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_reshard(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_pack(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_unpack(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_doctor(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code, const train::Offer& offer, bool needs_config);
void add_logs(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code, const train::Offer& offer);
void add_replay(CLI::App& app, int& exit_code, const train::Offer& offer);
// `shard` of a program with annotated tasks.
void add_annotated_shard(CLI::App& app, int& exit_code, const train::Offer& offer);

// The folder of the run that a command line trains, absolute. "": it is not this program's `train`,
// or its options are wrong, which it says itself.
// Throws: ConfigError when its config is wrong
std::filesystem::path folder_of_training(const std::vector<std::string>& words,
                                         const train::Offer& offer, bool needs_config);

// Arguments that several commands have: the checkpoint to read, the run to write, --json.
void add_checkpoint_path(CLI::App& command, std::string& path);
void add_new_run(CLI::App& command, std::string& output);
void add_json(CLI::App& command, bool& json);

// Writes one line to the launcher, if any (it prints the first failure once), else to stderr.
// Returns the code.
int report(ExitCode code, const std::string& message);
// The path with which the program can start itself again.
std::string own_program();
// The words after the program's name that this process was started with.
std::vector<std::string> own_words();

// trireme bench, for the program `trireme` only.

void add_bench(CLI::App& app, int& exit_code);
// Subcommands of `bench`.
void add_bench_device(CLI::App& bench, int& exit_code);
void add_bench_graph(CLI::App& bench, int& exit_code);
void add_bench_pipeline(CLI::App& bench, int& exit_code);

// trireme network and trireme meet, for the program `trireme` only.

void add_network(CLI::App& app, int& exit_code);
void add_meet(CLI::App& app, int& exit_code);

// trireme watch and trireme track, for the program `trireme` only.

void add_watch(CLI::App& app, int& exit_code);
// trireme export; `checkpoint export` is add_export().
void add_export_run(CLI::App& app, int& exit_code);

// `trireme data`.

void add_data(CLI::App& app, int& exit_code);
// Subcommands of `data`.
void add_data_prepare(CLI::App& data, int& exit_code);
void add_data_generate(CLI::App& data, int& exit_code);
void add_data_inspect(CLI::App& data, int& exit_code);
void add_data_outputs(CLI::App& data, int& exit_code);

// Each prepares, shows how far it is, and prints what it has written, with `json` as an object.
// Returns the exit code.
int run_prepare_tokens(const dataset::PrepareOptions& options, bool json);
int run_prepare_chat(dataset::PrepareChatOptions options, bool json);
int run_prepare_labelled(const dataset::PrepareLabelledOptions& options, bool json);
int run_prepare_features(const dataset::PrepareFeaturesOptions& options, bool json);

// The commands of `trireme` that only language models have.

void add_generate(CLI::App& app, int& exit_code);
void add_evaluate(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
// Subcommands of `checkpoint`, which must be there.
void add_export(CLI::App& app, int& exit_code);
void add_import(CLI::App& app, int& exit_code);
void add_upcycle(CLI::App& app, int& exit_code);

// The commands of `trireme` that predict what a layout costs.

void add_simulate(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_shard(CLI::App& app, int& exit_code);

// The commands of `trireme` that only image models have.

void add_classify(CLI::App& app, int& exit_code);
void add_sample(CLI::App& app, int& exit_code);

}  // namespace trireme::cli
