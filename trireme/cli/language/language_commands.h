// The commands of `trireme` that only language models have.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

void add_generate(CLI::App& app, int& exit_code);
// Subcommands of `checkpoint`, which must be there.
void add_export(CLI::App& app, int& exit_code);
void add_import(CLI::App& app, int& exit_code);
void add_upcycle(CLI::App& app, int& exit_code);

}  // namespace trireme::cli::inline internal
