// A program around tasks: the whole command line, from config keys to exit codes.
//
//   constexpr trireme::train::TaskKind kTasks[] = {{"digits", "read digits", make_digits}};
//   int main(int argc, char** argv) {
//     return trireme::cli::run_program(argc, argv, {.tasks = kTasks});
//   }
#pragma once

#include <string>
#include <vector>

#include "trireme/train/callbacks/callback.h"
#include "trireme/train/task/task.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// Adds a command to the parser. When chosen, it writes its result to `exit_code`.
using AddCommand = void (*)(CLI::App& app, int& exit_code);

struct ProgramOptions {
  train::TaskTable tasks{};            // at least one; the first is the default
  train::CallbackTable callbacks{};    // its own; the built-in ones run after them
  std::string name{};                  // "": that of the file
  std::string description{};           // the first lines of --help
  std::string version{};               // "mine 1.0, "; printed before Trireme's
  bool needs_config = false;           // `train` needs a config file
  std::vector<AddCommand> commands{};  // besides train, predict, checkpoint, ...
};

// Runs the command that `argv` asks for. Prints one line to stderr when it fails.
// Returns the exit code: 0 done, 1 bug, 2 the user can fix it, 3 a rank was lost (run again to
// resume), 4 a checkpoint cannot be used.
int run_program(int argc, char** argv, const ProgramOptions& options);

}  // namespace trireme::cli
