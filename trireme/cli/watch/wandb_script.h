// A Python script that replays a run into Weights & Biases, whose package has no reader of other
// files. The run's numbers and texts stand in it as comments of JSON in ASCII, so that nothing in
// them is ever code.
#pragma once

#include <functional>
#include <string>

#include "trireme/cli/watch/exported_run.h"

namespace trireme::cli {

// Hands over the script in pieces. project: "": the run's experiment
// Throws: Error when metrics.jsonl cannot be read
void write_wandb_script(const ExportedRun& run, const std::string& project,
                        const std::function<void(const std::string& piece)>& write);

}  // namespace trireme::cli
