// The commands of `trireme` that predict what a layout costs.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

void add_simulate(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);

}  // namespace trireme::cli::inline internal
