// What a program learns of its run: the facts before the first step, and everything that happens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "trireme/parallel/data/ddp.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/profile/profiler.h"
#include "trireme/train/run/source_use.h"

namespace trireme::train {

// Facts that a run derives from its config. Printed before the first step.
struct RunSummary {
  int num_ranks = 1;
  int num_threads = 1;  // per rank
  at::Device device = at::kCPU;
  int64_t num_parameters = 0;
  int64_t num_trained = 0;            // of them
  int64_t num_samples = 0;            // of the training data
  std::vector<SourceUse> sources{};   // if it is a blend
  int64_t microbatches_per_step = 1;  // per rank
  int64_t resumed_step = 0;           // 0: a new run
  std::string resumed_place{};        // "memory", "local" or "output.folder"
  std::string initial_weights{};      // of a new run, the checkpoint they come from; "": drawn
  std::vector<std::string> initial_notes{};  // on them, one line each
  // Notes for the user of a resumed run, one line each, such as what has changed.
  std::vector<std::string> resume_notes{};
  // Resumed with another layout or another train.compression: residuals start from zero.
  bool compression_restarted = false;
  bool tensor_crosses_hosts = false;  // every layer waits for the network
  // Model states of rank 0, measured on its tensors. Activations come on top.
  parallel::DataParallelMemory memory{};
  int64_t compression_bytes = 0;
  int64_t optimizer_bytes = 0;  // wherever they are
  int64_t table_bytes = 0;      // of embedding tables and their states, in memory
};

// Learns of everything that happens in a run, on rank 0 unless it says otherwise, and may print it.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // Called on every rank before the run writes anything. output.folder now belongs to this run.
  virtual void on_folder() {}
  virtual void on_start(const RunConfig& config, const RunSummary& summary) {}
  virtual void on_step(const StepMetrics& metrics) {}
  // Called on every rank when it has finished a step, before a checkpoint of it.
  virtual void on_finished(int64_t step) {}
  // A finding of the run, or a decision about the next steps; one line.
  virtual void on_finding(const std::string& line) {}
  // After a few seconds of waiting, called about every second: all ranks wait for these to read or
  // write their files. Called from another thread while the trainer's own works or waits.
  virtual void on_wait(std::span<const int> ranks, double seconds) {}
  // The same for ranks that are in a callback. The trainer's own thread may call others meanwhile.
  virtual void on_callback_wait(const std::string& callback, std::span<const int> ranks,
                                double seconds) {}
  // A checkpoint is on the disk. It took so long in all; training waited for `stall_seconds`.
  virtual void on_checkpoint(const std::filesystem::path& path, double seconds,
                             double stall_seconds) {}
  virtual void on_profile(const ProfileReport& report) {}
};

enum class Outcome {
  kFinished,  // train.steps steps
  kStopped,   // the next start continues
  kEnded,     // a callback ended it; the next start ends at once
};

}  // namespace trireme::train
