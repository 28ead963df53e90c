// The program's subcommands. Each adds itself to the parser and runs when it is chosen.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/local_ranks.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// Exit codes, the same for every command.
enum ExitCode {
  kDone = 0,
  kBug = 1,        // our bug, or anything unforeseen
  kUserError = 2,  // config, arguments, data
  kPeerLost = launch::kPeerLost,
  kBadCheckpoint = 4,
};

// Each keeps its options alive in the parser. The chosen one writes its result to `exit_code`.
void add_train(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
// A subcommand of `trireme bench`.
void add_bench_pipeline(CLI::App& bench, int& exit_code);

// The path with which the program can start itself again.
std::string own_program();

}  // namespace trireme::cli
