// The flight recorder: always on, one ring a rank, written by every group of that rank. In a run's
// folder the ring is a mapped file, which its owner alone may read, so it can be read while the run
// lives and after any death.
// It never throws, waits or allocates once it is made, and changes nothing that is communicated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "trireme/comm/recorder/ring.h"

namespace trireme::comm {

namespace internal {
struct RecordSlot;
}

struct RecorderOptions {
  // Where rank-00000.ring goes, made when it is missing; empty: memory of this process alone.
  std::filesystem::path folder{};
  int rank = 0;
  int world_size = 1;
  std::string job{};  // the same on all ranks; tells this run's rings from those of an earlier one
  // Calls that are remembered, 128 bytes each; rounded up to a power of two, at most 2^20.
  size_t num_records = 4096;
  // true: the ring has a name of its own until publish(), and replaces no other run's before.
  bool is_unpublished = false;
};

// What a rank is about to do.
struct RecordedCall {
  std::string_view operation;  // the first 23 letters are kept
  std::span<const int64_t> shape{};
  int64_t elements = -1;  // that all ranks must agree on; -1: may differ
  int dtype = -1;         // c10::ScalarType; -1: none
  int reduce_op = -1;     // ReduceOp; -1: none
  int peer = -1;          // root of a collective, or peer of a send or recv
  int tag = 0;
  bool is_point_to_point = false;
  bool is_background = false;
};

// Thread safety: issue() and the entries' methods from any thread, those of one group's issue()
// from one thread at a time. Outlives its entries.
class Recorder {
 public:
  // One call's record. A plain handle: copy it freely, finish it exactly once.
  class Entry {
   public:
    Entry() = default;   // records nothing
    void start() const;  // a background call begins to run; others have begun when issued
    void finish(bool succeeded) const;

   private:
    friend class Recorder;
    explicit Entry(internal::RecordSlot* record) : record_(record) {}
    internal::RecordSlot* record_ = nullptr;
  };

  // Throws: Error when the file cannot be made, with its path
  explicit Recorder(const RecorderOptions& options);
  // Marks the ring as closed; one that was never published goes, with the folders made for it.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A group of this rank, its members as ranks of the world in rank order. Names are cut at 63
  // letters. Returns the id for issue(); -1, whose calls name no group, when the table is full.
  int add_group(std::string_view name, std::span<const int> world_ranks);
  // Writes one record, in well under 100 ns (benchmarks/recorder.cc). Every call of a group in the
  // order in which the ranks must agree. A record that is not finished is never overwritten; when
  // all are unfinished the call is counted and not recorded.
  Entry issue(int group, const RecordedCall& call) noexcept;

  // The job by the name that its ranks have agreed on, in place of that of the options.
  // Before publish(): a reader may find the ring unreadable for a moment.
  void name_job(std::string_view job);

  // The folder is this run's: its ring takes the place of an earlier run's. Rank 0 removes what
  // starts that were killed have left there. Nothing when it is published already.
  // Throws: Error when the file cannot be renamed, with its path
  void publish();

  // What a reader of the file sees now.
  Ring snapshot() const;
  std::span<const std::byte> bytes() const;

 private:
  class Memory;

  internal::RecordSlot* claim(uint64_t& number) noexcept;
  void withdraw() noexcept;

  std::filesystem::path path_;                      // of the ring; empty: in memory
  std::filesystem::path unpublished_;               // its name until then; empty: published
  std::vector<std::filesystem::path> new_folders_;  // made for it, innermost first
  std::unique_ptr<Memory> memory_;
  std::mutex groups_mutex_;
};

}  // namespace trireme::comm
