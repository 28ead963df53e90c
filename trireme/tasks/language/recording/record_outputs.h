// Computes what the teacher of a run says of its data, on any layout, for runs that then need no
// teacher (outputs/teacher_outputs.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

struct RecordOptions {
  std::filesystem::path output;
  int64_t top_k = 64;  // tokens kept for each; at most the vocabulary
  // How often what is done goes to the disk, for a call that goes on with it.
  std::chrono::milliseconds journal_interval{1000};
  // Lines for people, and samples read so far; on every rank.
  std::function<void(const std::string& line)> tell{};
  std::function<void(int64_t done, int64_t total)> on_progress{};
  checkpoint::OnWait on_wait{};
};

struct RecordedOutputs {
  int64_t num_training = 0;
  int64_t num_validation = 0;  // 0: the data has none
  int64_t num_resumed = 0;     // of both, recorded by a call that was interrupted
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;
  uint64_t num_bytes = 0;  // of the file
};

// What record_outputs() reads of a run's config: the student's model is not built, and nothing is
// trained. Opens the data.
// Throws: ConfigError when the run has no teacher, or the ranks cannot divide it
train::RunConfig recording_config(train::RunConfig config, int num_ranks, int64_t top_k);

// Has the teacher read every training and validation sample, forward only, and writes the file on
// rank 0. config: of recording_config(), with its device set
// A call that is interrupted leaves ".<name>.tmp" beside the file (dataset/file/journal.h). The
// next call with the same data, teacher, temperature, top_k and precision goes on there, at any
// layout.
// Comm:       that of the teacher's forward, and per token 8 (2k + 1) bytes summed on rank 0
// Collective: every rank of `world`
// Throws:     ConfigError when the teacher's numbers are not finite, or another process writes the
//             file; Error when it cannot be written; as FrozenModel
RecordedOutputs record_outputs(const train::RunConfig& config, comm::Communicator& world,
                               const RecordOptions& options);

}  // namespace trireme::tasks
