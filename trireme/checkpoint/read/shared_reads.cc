#include "trireme/checkpoint/read/shared_reads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/place_bytes.h"

namespace trireme::checkpoint::inline internal {
namespace {

// The disk of another rank may be slow. A rank that is lost is noticed anyway.
constexpr std::chrono::hours kPatience{1};
constexpr std::chrono::milliseconds kBetweenChecks{200};

// The first byte of a batch.
constexpr std::byte kIsWhole{1};
constexpr std::byte kHasFailed{0};

void wait_for(comm::Work& work, const Peers& peers) {
  while (!work.wait_for(kBetweenChecks)) peers.check();
}

// This rank's part of the plan.
class SharedReader {
 public:
  SharedReader(const ReadPlan& plan, Shards& shards, const std::map<std::string, Target>& targets,
               comm::Communicator& group, const Peers& peers)
      : plan_(plan), shards_(shards), targets_(targets), group_(group), peers_(peers) {}

  void run() {
    for (size_t round = 0; round < plan_.num_rounds(); ++round) {
      peers_.check();
      const std::vector<Batch>& own = plan_.by_reader[static_cast<size_t>(group_.rank())];
      if (round < own.size()) hand_out(own[round], slots_[round % slots_.size()]);
      for (int distance = 1; distance < group_.size(); ++distance) {
        const int reader = (group_.rank() + distance) % group_.size();
        const auto& batches = plan_.by_reader[static_cast<size_t>(reader)];
        if (round < batches.size() && batches[round].takers.contains(group_.rank()))
          take(batches[round], reader);
      }
    }
    for (Slot& slot : slots_) wait_for_takers(slot);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Memory for a batch that others read.
  struct Slot {
    at::Tensor memory{};
    std::vector<comm::WorkPtr> sends{};
  };

  void wait_for_takers(Slot& slot) {
    for (const comm::WorkPtr& send : slot.sends) wait_for(*send, peers_);
    slot.sends.clear();
  }

  at::Tensor make_memory() {
    const auto num_bytes = static_cast<int64_t>(plan_.largest_batch());
    try {
      return group_.symmetric_empty({num_bytes}, at::kByte);
    } catch (const ConfigError&) {  // the heap is full: the group copies
      return at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte));
    }
  }

  void hand_out(const Batch& batch, Slot& slot) {
    wait_for_takers(slot);
    if (!slot.memory.defined()) slot.memory = make_memory();
    auto* const data = static_cast<std::byte*>(slot.memory.mutable_data_ptr());
    attempt([&] {
      for (const SharedChunk& each : batch.chunks) {
        const auto bytes = shards_.read_chunk(each.name, each.record, each.chunk, scratch_);
        std::memcpy(data + each.place, bytes.data(), bytes.size());
      }
    });
    data[0] = failure_ ? kHasFailed : kIsWhole;
    const at::Tensor sent = slot.memory.narrow(0, 0, static_cast<int64_t>(batch.num_bytes));
    for (const int taker : batch.takers) slot.sends.push_back(group_.send(sent, taker, behind_));
    place(batch, data);
  }

  void take(const Batch& batch, int reader) {
    const comm::LoanPtr loan = group_.borrow({static_cast<int64_t>(batch.num_bytes)},
                                             at::TensorOptions().dtype(at::kByte), reader, behind_);
    wait_for(*loan, peers_);
    place(batch, static_cast<const std::byte*>(loan->data().const_data_ptr()));
  }

  // Copies what this rank wants of the batch.
  void place(const Batch& batch, const std::byte* data) {
    if (data[0] != kIsWhole) return;
    attempt([&] {
      for (const SharedChunk& each : batch.chunks) {
        if (std::ranges::count(each.takers, group_.rank()) == 0) continue;
        const Target& target = targets_.at(each.name);
        place_bytes({.box = each.piece.box,
                     .dtype = each.record.dtype,
                     .at = each.at,
                     .bytes = {data + each.place, each.chunk.num_bytes}},
                    target.box, target.tensor);
      }
    });
  }

  // After a failure the remaining batches are exchanged without their content.
  template <typename Action>
  void attempt(const Action& action) {
    if (failure_) return;
    try {
      action();
    } catch (const CommError&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const ReadPlan& plan_;
  Shards& shards_;
  const std::map<std::string, Target>& targets_;
  comm::Communicator& group_;
  const Peers& peers_;
  const comm::Options behind_{.timeout = kPatience, .background = true};
  std::array<Slot, 2> slots_;
  std::vector<std::byte> scratch_;
  std::exception_ptr failure_;
};

}  // namespace

void read_shared(const ReadPlan& plan, Shards& shards, const std::map<std::string, Target>& targets,
                 comm::Communicator& group, const Peers& peers) {
  SharedReader(plan, shards, targets, group, peers).run();
}

}  // namespace trireme::checkpoint::inline internal
