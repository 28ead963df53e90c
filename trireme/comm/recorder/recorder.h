// The flight recorder: always on, one ring per rank, which all of the rank's groups and its
// training loop write. In a run's folder the ring is a mapped file that only its owner may read. It
// can be read during the run and after any crash. Once made, it never throws, waits or allocates,
// and never changes what is communicated.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "trireme/comm/recorder/ring.h"
#include "trireme/comm/recorder/wait_sums.h"

namespace trireme::comm {

struct RecordSlot;

struct RecorderOptions {
  // The folder of rank-00000.ring; made if missing. Empty: the ring is in this process's memory
  // only.
  std::filesystem::path folder{};
  int rank = 0;
  int world_size = 1;
  std::string job{};  // the same on all ranks; tells this run's rings from an earlier run's
  // Number of calls remembered, 128 bytes each. Rounded up to a power of two, at most 2^20.
  size_t num_records = 4096;
  // true: until publish(), the ring has a temporary name and does not replace another run's.
  bool is_unpublished = false;
};

// A call that a rank is about to make.
struct RecordedCall {
  std::string_view operation;  // the first 23 letters are kept
  std::span<const int64_t> shape{};
  int64_t elements = -1;  // all ranks must agree on it; -1: may differ
  int dtype = -1;         // c10::ScalarType; -1: none
  int reduce_op = -1;     // ReduceOp; -1: none
  int peer = -1;          // root of a collective, or peer of a send or recv
  int tag = 0;
  bool is_point_to_point = false;
  bool is_background = false;
  int64_t step = 0;  // positive: no call, but this step of the training loop (StepRecording)
};

// Thread safety: any thread may call issue() and the entries' methods, but one thread at a time
// calls issue() for a group. Must outlive its entries.
class Recorder {
 public:
  // One call's record. A plain handle that may be copied. Finish it exactly once.
  class Entry {
   public:
    Entry() = default;   // records nothing
    void start() const;  // a background call begins to run; other calls begin when issued
    void finish(bool succeeded) const;
    void finish_step(std::chrono::nanoseconds waiting) const;  // a step has succeeded

   private:
    friend class Recorder;
    explicit Entry(RecordSlot* record) : record_(record) {}
    RecordSlot* record_ = nullptr;
  };

  // Throws: Error when the file cannot be made, with its path
  explicit Recorder(const RecorderOptions& options);
  // Marks the ring as closed. Removes a ring that was never published, and the folders made for it.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Adds a group of this rank. world_ranks: its members as world ranks, in rank order. Names are
  // cut at 63 letters. Returns the id for issue(), or -1 when the table is full; calls with -1 name
  // no group.
  int add_group(std::string_view name, std::span<const int> world_ranks);
  // Writes one record, in well under 100 ns (benchmarks/recorder.cc). Issue a group's calls in the
  // order in which the ranks must agree. An unfinished record is never overwritten. When all
  // records are unfinished, the call is counted but not recorded.
  Entry issue(int group, const RecordedCall& call) noexcept;

  // Replaces the options' job name with the one that the ranks have agreed on. Call it before
  // publish(), because a reader may find the ring unreadable for a moment.
  void name_job(std::string_view job);

  // Makes this ring the folder's, in place of an earlier run's. Rank 0 also removes what killed
  // starts have left there. Does nothing when already published.
  // Throws: Error with the file's path when it cannot be renamed
  void publish();

  // Whom this rank has waited for, in the groups that record here. Not in the ring.
  const std::shared_ptr<WaitSums>& waits() const { return waits_; }

  // The ring as a reader of the file would see it now.
  Ring snapshot() const;
  std::span<const std::byte> bytes() const;

 private:
  class Memory;

  RecordSlot* claim(uint64_t& number) noexcept;
  void withdraw() noexcept;

  std::filesystem::path path_;                      // of the ring; empty: in memory
  std::filesystem::path unpublished_;               // temporary name; empty: published
  std::vector<std::filesystem::path> new_folders_;  // made for it, innermost first
  std::unique_ptr<Memory> memory_;
  std::mutex groups_mutex_;
  const std::shared_ptr<WaitSums> waits_ = std::make_shared<WaitSums>();
};

// Records one step of a training loop: its number, how long it took, and how much of that this rank
// waited for others. The watchdog (launch/watchdog) tells from it who is slow.
// The step begins with this object and has failed if that ends without finish(). One ring entry,
// under 100 ns. A null recorder records nothing.
class StepRecording {
 public:
  // step: from 1
  StepRecording(Recorder* recorder, int64_t step) {
    if (recorder != nullptr) entry_ = recorder->issue(-1, {.operation = "step", .step = step});
  }
  ~StepRecording() {
    if (!is_finished_) entry_.finish(false);
  }
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  // waiting: of the step's time, what this rank waited for communication.
  void finish(std::chrono::nanoseconds waiting) {
    entry_.finish_step(waiting);
    is_finished_ = true;
  }

 private:
  Recorder::Entry entry_;
  bool is_finished_ = false;
};

}  // namespace trireme::comm
