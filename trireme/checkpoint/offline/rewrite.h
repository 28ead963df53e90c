// Writes a checkpoint again: as another number of ranks would save it, as a copy that shares no
// file with another checkpoint, or beside checkpoints from which it takes what they have.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::checkpoint {

// Every rank is a thread with a file of its own.
inline constexpr int kMaxRewriteRanks = 256;
// Keeps the boxes as they were saved.
inline constexpr int kAsSaved = 0;

struct RewriteOptions {
  // In how many files. A tensor is cut as evenly as possible along dimension 0, or along its
  // longest dimension if dimension 0 is shorter than the ranks are many. kAsSaved: each box stays
  // whole, in as many files as ranks saved the source, at most kMaxRewriteRanks.
  int num_ranks = kAsSaved;
  // Chunks that the newest checkpoint of the folder has are not written again: the files that have
  // them are linked. Boxes that were cut in another way have few chunks in common.
  bool incremental = false;
  Compression compression = Compression::kNone;
  int64_t epoch = 1;  // of the checkpoint that is written, as in SaveOptions
  OnProgress on_progress{};
};

struct Rewritten {
  int num_ranks = 0;
  int64_t num_bytes = 0;      // of all tensors
  int64_t written_bytes = 0;  // size of the new files
  int64_t shared_bytes = 0;   // of the tensors' bytes, those in linked files
};

// Writes `root`/step-…: the step, the state and every bit of the tensors as in `source`. It loads
// at any layout, as every checkpoint does, appears complete or not at all, and replaces one of the
// same step. The checksums of all bytes of the source are compared.
// Memory: 32 MiB of each rank, or a whole box if its rows are larger than 1 MiB; and what the
//         ranks report about their files: about 0.4 KB per tensor and pair of ranks
// Throws: ConfigError when num_ranks is not from 1 to kMaxRewriteRanks, when a tensor of the source
//         has more boxes, or when the reports would take more than half of this machine's memory;
//         CheckpointError when a checksum of the source is wrong; otherwise as save()
Rewritten rewrite(const SavedTensors& source, const std::filesystem::path& root,
                  const RewriteOptions& options = {});

}  // namespace trireme::checkpoint
