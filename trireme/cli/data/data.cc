// trireme data: makes training data.
#include <CLI/CLI.hpp>

#include "trireme/cli/data/data_commands.h"

namespace trireme::cli::inline internal {

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  add_data_prepare(*data, exit_code);
  add_data_generate(*data, exit_code);
}

}  // namespace trireme::cli::inline internal
