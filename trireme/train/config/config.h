// A run's whole configuration: typed, with its defaults, and checked whole before the first
// allocation or connection. Reads TOML and --section.key=value overrides; writes the resolved TOML
// back. Each section is a struct of keys (base/key.h), in the header of what it configures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/model/family/config.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/config/train_config.h"
#include "trireme/train/offload/offload_config.h"
#include "trireme/train/optimizer/optimizer_config.h"

namespace trireme::train {

struct DataConfig {
  TRIREME_KEYS_BEGIN(DataConfig)
  TRIREME_KEY(std::string, path, "data/python", kMustStay,
              "prefix that `trireme data prepare --output` wrote")
  TRIREME_KEY(uint64_t, seed, 1, kMustStay, "order of the sequences", Range{0, kMaxSeed})
  TRIREME_KEY(bool, separate_documents, false, kMustStay,
              "attention only within documents, where a sequence holds parts of several")
  TRIREME_KEYS_END()
};

struct CheckpointConfig {
  TRIREME_KEYS_BEGIN(CheckpointConfig)
  TRIREME_KEY(int64_t, interval, 50, kMayChange, "save every N steps; 0 = only at the end",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, keep, 3, kMayChange, "newest checkpoints that stay", Range{1, 1e6})
  TRIREME_KEYS_END()
};

struct OutputConfig {
  TRIREME_KEYS_BEGIN(OutputConfig)
  TRIREME_KEY(std::string, folder, "runs/demo", kMayChange,
              "metrics, events and checkpoints of the run")
  TRIREME_KEYS_END()
};

// See resume.h. Never written back: a permission is for the start it is given to.
struct ResumeConfig {
  TRIREME_KEYS_BEGIN(ResumeConfig)
  TRIREME_KEY(std::string, allow, "", kNotKept,
              "keys of the checkpoint's run that may change this once, such as "
              "data.path,model.dropout")
  TRIREME_KEYS_END()
};

struct RunConfig {
  model::ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  OffloadConfig offload;
  CheckpointConfig checkpoint;
  OutputConfig output;
  ResumeConfig resume;

  // Valid after resolve(), as what follows: sequences that all ranks read in one forward.
  int64_t sequences_per_forward() const { return train.micro_batch * parallel.data; }
  // Whether each forward of a step has so many.
  bool is_even() const { return train.global_batch % sequences_per_forward() == 0; }
  // Forward passes of one rank in one step.
  int64_t microbatches_per_step() const {
    return (train.global_batch + sequences_per_forward() - 1) / sequences_per_forward();
  }
  // Sums of the whole gradient that a rank holds until a step's last microbatch: with one none, and
  // train.reproducible's tree has one for each of its levels.
  int64_t held_gradients() const;
  // Of weights and activations.
  c10::ScalarType dtype() const { return train.precision; }
  // Of gradients.
  c10::ScalarType gradient_dtype() const;
};

// "train.steps" -> "10", as text.
using Override = std::pair<std::string, std::string>;

// Throws: ConfigError on an unknown key (naming the nearest one), a wrong type, an unknown value
RunConfig parse_config(std::string_view toml, const std::string& source,
                       std::span<const Override> overrides = {});
RunConfig load_config(const std::filesystem::path& path, std::span<const Override> overrides = {});

// What a run has written back into its checkpoint. Its values may lie outside of what is allowed
// today.
// Throws: CheckpointError on an unknown key, which a later version has, or a wrong type
RunConfig parse_saved_config(std::string_view toml, const std::string& source);
// The same, of which the model alone is used: [model] and train.precision are as allowed today.
// Throws: CheckpointError, also when they are not
RunConfig parse_saved_model(std::string_view toml, const std::string& source);

// Checks everything that needs no data and no peer, and fills parallel.data in.
// Throws: ConfigError: key, value found, value expected
void resolve(RunConfig& config, int num_ranks);

// Every key with its value as TOML writes it: "train.precision" -> "'fp32'". Without resume.allow.
std::vector<Override> settings(const RunConfig& config);
std::string to_toml(const RunConfig& config);

// Every key with its default and meaning, one a line, for --help.
std::string describe_config();

}  // namespace trireme::train
