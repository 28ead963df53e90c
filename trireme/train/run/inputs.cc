#include "trireme/train/run/inputs.h"

#include <algorithm>
#include <filesystem>

#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine_memory.h"
#include "trireme/dataset/prepare.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/parallel/memory_check.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

void take_vocabulary(RunConfig& config, const dataset::Tokenizer& tokenizer) {
  const int64_t vocab_size = tokenizer.vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = vocab_size;
  TRIREME_CHECK(config.model.vocab_size >= vocab_size, "model.vocab_size is ",
                config.model.vocab_size, "; the tokenizer of ", config.data.path, " has ",
                vocab_size, " tokens: set it to 0 or to at least that");
}

void make_output_folder(const RunConfig& config) {
  const fs::path folder = config.output.folder;
  std::string reason;
  try {
    make_folders(folder);
  } catch (const Error& error) {
    reason = concat(": ", error.what());
  }
  const bool writable = reason.empty() && ::access(folder.c_str(), W_OK | X_OK) == 0;
  TRIREME_CHECK(writable, "output.folder ", folder.string(), " cannot be written", reason,
                "; choose another with --output.folder=PATH");
}

}  // namespace

InputTokens::InputTokens(const RunConfig& config, const std::string& prefix, bool shuffle)
    : file(prefix),
      sampler(file, {.sequence_length = config.model.sequence_length,
                     .vocab_size = config.model.vocab_size,
                     .seed = config.data.seed,
                     .shuffle = shuffle}) {}

Inputs open_inputs(RunConfig& config, int num_ranks, int num_local_ranks) {
  resolve(config, num_ranks);
  Inputs inputs;
  inputs.tokenizer = dataset::load_tokenizer(config.data.path);
  take_vocabulary(config, *inputs.tokenizer);
  inputs.training = std::make_unique<InputTokens>(config, config.data.path, /*shuffle=*/true);
  if (config.train.evaluate_interval > 0) {
    inputs.validation = std::make_unique<InputTokens>(
        config, dataset::validation_prefix(config.data.path), /*shuffle=*/false);
    inputs.evaluation_sequences =
        std::min(inputs.validation->sampler.num_sequences(), config.train.evaluate_sequences);
  }
  check_memory(config, num_local_ranks, machine_memory_bytes());
  check_layout(config);
  make_output_folder(config);
  return inputs;
}

void preflight(RunConfig& config, int num_ranks) {
  open_inputs(config, num_ranks, num_ranks);
  lock_output_folder(config);
}

std::unique_ptr<FolderLock> lock_output_folder(const RunConfig& config) {
  return std::make_unique<FolderLock>(config.output.folder, std::chrono::seconds(2));
}

}  // namespace trireme::train::inline internal
