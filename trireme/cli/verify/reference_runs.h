// A run and another framework's step, for `trireme verify A.toml --reference FOLDER`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/verify/twin_runs.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct ReferenceArguments {
  std::string folder;  // with fp32/ and fp64/; "": there is none
  std::string names;   // a file of names; "": transformers'
  std::string batch;   // where to write the first batch; "": nowhere
};

void add_reference_options(CLI::App& command, ReferenceArguments& arguments);

// Writes the samples of A's first step as its model reads them, in their order, as safetensors.
// Returns their number.
// Throws: ConfigError
int64_t write_first_batch(const TwinOptions& options, const std::filesystem::path& file);

// One step of A, and no run of B.
// Throws: ConfigError when options are set that a reference has no part in
void prepare_for_reference(TwinOptions& options);

// Trains A for one step in both precisions, and brings each and the reference of its precision into
// one form, for prepare_for_reference()'s options: as train_twins(), B being the reference.
// Throws: ConfigError when the reference lacks a precision; as train_twins() and write_common()
std::vector<TwinRun> train_beside_reference(
    const TwinOptions& options, const ReferenceArguments& arguments,
    const std::function<void(const TwinRun& run, double seconds)>& on_run,
    const std::function<void(const std::string& note)>& on_note);

}  // namespace trireme::cli
