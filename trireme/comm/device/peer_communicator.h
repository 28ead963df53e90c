// The Communicator of ranks whose devices map each other's memory (PeerDevice). A rank copies
// what its peers are to read into its mapped memory, in chunks; they read it there. Sums are taken
// in rank order, with the bits of reduce_kernel.h, so that they depend neither on the size nor on
// the layout and are those of `shm`.
//
// A chunk has one of two slots of the mapped memory, in turn. The ranks meet on their hosts once a
// chunk, and their streams wait for each other by events:
//   the slot is free     when every rank has read the chunk before the last (kDone)
//   copy, kReady, meet   then read every peer's slot after its kReady; kDone
// A meeting also tells that every rank has called for the events of the chunk before. Events are
// recorded again two chunks later, after a meeting in between, so that no wait sees the wrong one.
// An all_reduce of more than two ranks and kSmallBytes is in two steps: each rank sums its part of
// the chunk in its own slot (kSummed), the ranks meet again and read each other's parts.
//
// Cost per rank for p ranks and n bytes, beyond communicator.h's: a copy of the n bytes. Reads:
//   all_reduce   p * n in one step; in two (p - 1) / p * n of sums and as much of results
//   reduce       p * n at the root
// Foreground calls return when their work has been given to the current stream, as on NCCL.
// Background calls run on a thread and a stream of the group, and are done when the device is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "trireme/comm/background_work.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {

// Memory of the same size on each rank, and `kEvents` events of each. Thread safety: one thread at
// a time.
class PeerMemory {
 public:
  static constexpr int kEvents = 6;

  // Without set_unread() the memory stays until the process ends, as peers may still read it.
  virtual ~PeerMemory() = default;
  // No rank reads this rank's memory any more.
  virtual void set_unread() = 0;
  // That of `rank`, this one included, as this rank sees it: [num_bytes] uint8
  virtual const at::Tensor& bytes_of(int rank) const = 0;
  // Marks the work that this rank's current stream has been given.
  virtual void record(int event) = 0;
  // This rank's current stream continues after what `rank` recorded last, at once if it recorded
  // nothing.
  virtual void wait(int rank, int event) = 0;
};

// Thread safe.
class PeerDevice {
 public:
  virtual ~PeerDevice() = default;
  virtual at::Device device() const = 0;
  // A stream for a group's background calls.
  virtual c10::Stream new_stream() const = 0;
  // Collective: every rank of `host`, which carries the names of the memory
  virtual std::unique_ptr<PeerMemory> share(Communicator& host, int64_t num_bytes) const = 0;
};

struct PeerOptions {
  std::string name = "world";  // in errors
  GroupRecorder recorder = {};
  int64_t most_slot_bytes = 64 << 20;  // of each of a rank's two slots; they start small
};

class PeerCommunicator : public RecordedCommunicator {
 public:
  static constexpr int64_t kSmallBytes = 64 << 10;

  // `host` is this group's only: the ranks meet there, and it sends messages.
  PeerCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<const PeerDevice> device,
                   PeerOptions options);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return options_.name; }
  bool reduces_in_rank_order() const override { return true; }

  void abort(const std::string& reason) override { host_->abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  using Tensors = std::vector<at::Tensor>;

  // Messages go through the host's memory (device_group.h).
  WorkPtr start(Collective&& call, const Recorder::Entry& entry) override;
  void check_reduction(const Call& call) const override;
  void carry_out(const Collective& call);
  // The ranks tell each other their call and `sizes`, one number for each rank. Returns all ranks'.
  // Throws: CommError when a rank calls something else
  std::vector<std::vector<int64_t>> meet(const Call& call, const std::vector<int64_t>& sizes,
                                         const Options& options);
  void meet_again(const Options& options);
  // Moves blocks, each [n] uint8: to[r] of every rank to rank r's from[this rank]. is_common: to[]
  // are one block.
  void move(const Call& call, const Tensors& to, const Tensors& from, bool is_common,
            const Options& options);
  void reduce_scatter_flat(const Call& call, const at::Tensor& flat, const Tensors& inputs,
                           const Options& options);
  void reduce_flat(const Call& call, const at::Tensor& flat, int root, const Options& options);
  // Slots of at least that size, as far as they may grow; the same on all ranks.
  void make_room(int64_t num_bytes);
  // Begins a chunk: `fill(slot)` copies into this rank's; when it returns the peers' may be read.
  template <typename Fill>
  void begin_chunk(const Options& options, Fill fill);
  void end_chunk();
  at::Tensor slot_of(int rank) const;  // of the chunk that has begun: [slot_bytes_] uint8
  int event_of(int which) const { return 3 * static_cast<int>(chunk_ % 2) + which; }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<const PeerDevice> device_;
  PeerOptions options_;
  std::unique_ptr<PeerMemory> memory_;
  int64_t slot_bytes_ = 0;
  uint64_t chunk_ = 0;
  uint64_t sequence_ = 0;
  std::optional<c10::Stream> background_;
  AbortGuard abort_;
  Progress progress_;  // last: its thread stops first
};

}  // namespace trireme::comm
