// trireme bench, for the program `trireme` only.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

void add_bench(CLI::App& app, int& exit_code);
// Subcommands of `bench`.
void add_bench_device(CLI::App& bench, int& exit_code);
void add_bench_pipeline(CLI::App& bench, int& exit_code);

}  // namespace trireme::cli::inline internal
