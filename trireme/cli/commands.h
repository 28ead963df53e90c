// The commands of every program. Each adds itself to the parser and runs when it is chosen.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/local_ranks.h"
#include "trireme/train/config/config.h"

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

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
void add_checkpoint(CLI::App& app, int& exit_code, const train::Offer& offer);
// Subcommands of `checkpoint`.
void add_checkpoint_average(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_diff(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_reshard(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_pack(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_checkpoint_unpack(CLI::App& group, int& exit_code, const train::Offer& offer);
void add_doctor(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_logs(CLI::App& app, int& exit_code);

// Arguments that several commands have: the checkpoint to read, the run to write, --json.
void add_checkpoint_path(CLI::App& command, std::string& path);
void add_new_run(CLI::App& command, std::string& output);
void add_json(CLI::App& command, bool& json);

// Writes one line to the launcher, if any (it prints the first failure once), else to stderr.
// Returns the code.
int report(ExitCode code, const std::string& message);
// The path with which the program can start itself again.
std::string own_program();

}  // namespace trireme::cli::inline internal
