// A run's whole configuration: typed, with its defaults, and checked whole before the first
// allocation or connection. Reads TOML and --section.key=value overrides; writes the resolved TOML
// back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"
#include "trireme/model/family/config.h"
#include "trireme/train/optimizer/optimizer_config.h"

namespace trireme::train {

struct DataConfig {
  std::string path = "data/python";  // prefix of .bin/.idx
  uint64_t seed = 1;                 // order of the sequences
  bool separate_documents = false;   // a token reads those of its own document alone
};

struct TrainConfig {
  int64_t steps = 200;
  int64_t global_batch = 16;  // sequences a step over all ranks
  int64_t micro_batch = 4;    // sequences a forward
  std::string precision = "fp32";
  uint64_t seed = 42;                     // initial weights, dropout, stochastic rounding
  double gradient_clip = 1.0;             // largest global norm; 0: none
  bool master_weights = true;             // bf16, fp16: the optimizer keeps weights in fp32
  bool stochastic_rounding = false;       // bf16 without masters
  std::string reduce_dtype = "gradient";  // bf16, fp16: sum gradients so, or in "fp32"
  double loss_scale = 65536;              // fp16: at first
  int64_t loss_scale_interval = 1000;     // fp16: good steps before it doubles
  std::string recompute = "none";
  std::string recompute_modules = "attention_core";  // selective: which
  bool reproducible = false;
  bool uneven_batches = false;          // the last ranks' microbatches may be smaller or empty
  bool measure_noise = false;           // the gradient noise scale
  int64_t skip_bad_steps = 0;           // in a row; 0: a bad step ends the run
  double spike_factor = 0;              // a norm so many times its mean is bad; 0: never
  int64_t check_replicas_interval = 0;  // steps between comparisons of the replicas; 0: never
  int64_t evaluate_interval = 0;        // steps between evaluations; 0: never
  int64_t evaluate_sequences = 64;
  int64_t bucket_bytes = 4 << 20;
  bool overlap = true;
  bool symmetric_memory = true;
  std::string compression = "none";  // of gradients on the wire
  int64_t compression_rank = 4;      // powersgd
  double compression_ratio = 0.01;   // topk: of each parameter's elements
  int64_t compression_warmup = 0;    // steps without
};

struct ParallelConfig {
  int64_t data = 0;  // 0: what the other axes leave
  int64_t zero = 0;
  int64_t shard = 0;           // zero: ranks that share one copy; 0: all data ranks
  int64_t gathered_units = 3;  // zero = 3: units whose parameters are whole at one time
  int64_t tensor = 1;
  bool sequence_parallel = false;     // tensor: between the layers each rank has its own tokens
  std::string async_tensor = "auto";  // tensor: communicate while multiplying
  int64_t pipeline = 1;
  std::string schedule = "1f1b";
  int64_t stages_per_rank = 0;       // 0: what the schedule asks for
  std::string stage_layers = "";     // "3,3": layers of each stage; empty: as even as it goes
  int64_t stage_memory = 0;          // bytes that a rank's stages may take; 0: no limit
  int64_t rebalance_interval = 0;    // steps between looks at the stages' times; 0: never
  double rebalance_threshold = 0.1;  // of the slowest stage's time that a move must save
  int64_t context = 1;
  std::string context_form = "ring";
  int64_t expert = 1;
  std::string transport = "auto";
  int64_t timeout_seconds = 300;  // that a rank waits for another before it gives up
  int64_t heap_bytes = 0;         // symmetric memory that a rank may allocate; 0: what the host has
};

struct OffloadConfig {
  std::string optimizer = "none";   // where its states are: with the parameters, "host" or "disk"
  std::string folder = "";          // disk; empty: <output.folder>/offload
  int64_t buffer_bytes = 64 << 20;  // disk: of each buffer that states pass through
};

struct CheckpointConfig {
  int64_t interval = 50;  // steps; 0: only at the end
  int64_t keep = 3;
};

struct OutputConfig {
  std::string folder = "runs/demo";
};

struct ResumeConfig {
  // Keys that must stay as they were and may change this once, see resume.h. Never written back: a
  // permission is for the start that it is given to.
  std::string allow = "";
};

// The values of train.precision.
inline constexpr Choice<c10::ScalarType> kPrecisions[] = {{"fp64", c10::ScalarType::Double},
                                                          {"fp32", c10::ScalarType::Float},
                                                          {"bf16", c10::ScalarType::BFloat16},
                                                          {"fp16", c10::ScalarType::Half}};

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
  c10::ScalarType dtype() const;
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
