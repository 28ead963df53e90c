// Ranks of a command that asks a trained model: one, N that the command starts, or those of a
// launcher.
#pragma once

#include <functional>

#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct AskedRanks {
  int num_ranks = 1;
  int num_threads = 0;
  bool is_given = false;  // --ranks
};

// Adds --ranks and --threads. After parsing, is_given says whether --ranks was given.
void add_ranks(CLI::App& command, AskedRanks& ranks);

// Accepts the keys of train::asking_keys(), which are then among the command's remaining words, and
// says so in its help.
void add_layout_help(CLI::App& command);

// libtorch's threads of this process.
void use_threads(int num_threads);

// How many ranks the command has; launched: those of a launcher.
// Throws: ConfigError when --ranks says another number than the launcher
int count_ranks(const AskedRanks& ranks);

// Calls `work` on each rank, with the config's transport and device. When this process starts the
// ranks, they are this program with the same words, and it only watches them.
// Returns the exit code.
int run_on_ranks(
    const AskedRanks& ranks, train::RunConfig config,
    const std::function<void(train::RunConfig& config, comm::Communicator& world)>& work);

}  // namespace trireme::cli
