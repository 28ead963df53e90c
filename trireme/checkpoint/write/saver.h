// Saves that go on while training does: the caller waits for a copy in memory, and the writing
// happens in a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

struct EarlierSaves;
class SnapshotMemory;
// A save that has ended.
struct Saved {
  std::filesystem::path folder;  // in the last target
  int64_t step = 0;
  std::chrono::nanoseconds stall{0};  // of the caller
  std::chrono::nanoseconds took{0};   // in all
};

struct SaverOptions {
  // false: start() returns at the end of the save, and needs no memory for copies.
  bool in_background = true;
  // Whether targets may have replicas.
  bool has_replicas = false;
};

// One save at a time. Not thread safe. Every function is collective: all ranks of the world call
// the same ones in the same order. The destructor gives up what is under way: the folder keeps its
// earlier checkpoints. It waits at most a few seconds for a disk that does not answer.
class Saver {
 public:
  // Comm: two splits of `world`, so that the saves' operations never meet its
  explicit Saver(comm::Communicator& world, const SaverOptions& options = {});
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Like save() to one target after the other, each with its own new and shared chunks. In the
  // background returns when this rank's part is copied. Ask for the end of an earlier save before.
  // When a target fails, those before it have the checkpoint.
  // Memory: the bytes that this rank writes, kept for the next save
  // Throws: as save(), except for what happens after the copy
  void start(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
             const std::string& state);
  void start(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
             const std::string& state, const SaveOptions& options) {
    start({{root, options}}, step, entries, state);
  }

  // Whether a save was started whose end nobody has asked for.
  bool is_busy() const;

  // The save, once it has ended on every rank; nothing while it goes on. `waits`: waits for the
  // end. Nothing when none was started.
  // Comm:   in the background 8 bytes per rank
  // Throws: the error of the save, on all ranks
  std::optional<Saved> finish(bool waits);
  // Whether the last error from finish() applies to every target: replicas differ, or values are
  // not finite. The same on all ranks.
  bool was_refused() const { return was_refused_; }

 private:
  struct Task;

  comm::Communicator& world_;
  // Shared with a task that does not end in time.
  std::shared_ptr<comm::Communicator> group_;  // null in the foreground
  std::shared_ptr<comm::Communicator> lane_;   // of replicas; null: there are none
  std::shared_ptr<SnapshotMemory> memory_;
  std::shared_ptr<EarlierSaves> earlier_;
  std::shared_ptr<Task> task_;  // null: idle
  OnWait on_wait_;
  bool was_refused_ = false;
};

}  // namespace trireme::checkpoint
