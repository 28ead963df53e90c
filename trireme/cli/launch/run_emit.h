// `trireme run --emit SYSTEM CONFIG`: prints or writes the file with which a scheduler starts the
// run (launch/jobs/emit.h).
#pragma once

#include <cstdint>
#include <string>

#include "trireme/launch/jobs/emit.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct EmitOptions {
  std::string system = {};  // --emit; "": the command runs instead
  std::string output = {};  // the file to write; "": none
  std::string time = {};    // "H:MM:SS" or "D-HH:MM:SS"; "": the scheduler's limit
  int64_t notice_seconds = 120;
  // Options of --emit alone are set here. The caller sets what `trireme run` has anyway: config,
  // overrides, min_nnodes, nnodes and nproc_per_node.
  launch::JobOptions job = {};
};

// Adds --emit and the options that need it. `options` must outlive the parser.
void add_emit_options(CLI::App& run, EmitOptions& options);

// Returns the text to print: the job file, or one line when the file was written to options.output.
// Throws: ConfigError as launch::emit_job(), and when the time is malformed or the file exists;
//         Error when it cannot be written
std::string emit(const EmitOptions& options);

}  // namespace trireme::cli
