// `trireme data`.
#pragma once

#include <string>

#include "trireme/dataset/prepare.h"
#include "trireme/dataset/recommend/prepare_features.h"

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

void add_data(CLI::App& app, int& exit_code);
// Subcommands of `data`.
void add_data_prepare(CLI::App& data, int& exit_code);
void add_data_generate(CLI::App& data, int& exit_code);

// Each prepares, shows how far it is, and prints what it has written, with `json` as an object.
// Returns the exit code.
int run_prepare_tokens(const dataset::PrepareOptions& options, bool json);
int run_prepare_features(const dataset::PrepareFeaturesOptions& options, bool json);

}  // namespace trireme::cli::inline internal
