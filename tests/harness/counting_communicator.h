// A communicator that counts calls and bytes by the formulas of trireme/comm/communicator.h and
// forwards every call. It never changes a value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::harness {

struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;  // sent or received by this rank, as the interface states them
  bool operator==(const Traffic&) const = default;
};

// Counts of a group and of all groups split off it, by group name and operation.
class Ledger {
 public:
  void add(const std::string& group, const std::string& operation, int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    Traffic& traffic = entries_[{group, operation}];
    ++traffic.calls;
    traffic.bytes += num_bytes;
  }
  Traffic of(const std::string& group, const std::string& operation) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find({group, operation});
    return found == entries_.end() ? Traffic{} : found->second;
  }
  // The sum over all operations of `group`.
  Traffic of(const std::string& group) const {
    const std::lock_guard lock(mutex_);
    Traffic sum;
    for (const auto& [key, traffic] : entries_) {
      if (key.first != group) continue;
      sum.calls += traffic.calls;
      sum.bytes += traffic.bytes;
    }
    return sum;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Traffic> entries_;
};

class CountingCommunicator : public comm::Communicator {
 public:
  // `inner` must outlive this object.
  explicit CountingCommunicator(comm::Communicator& inner)
      : inner_(&inner), ledger_(std::make_shared<Ledger>()) {}

  Ledger& ledger() { return *ledger_; }
  // The bytes of all_to_all()'s blocks for other ranks, however uneven the blocks are.
  int64_t sent_by_all_to_all() const { return sent_by_all_to_all_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  bool reduces_in_rank_order() const override { return inner_->reduces_in_rank_order(); }

  comm::WorkPtr run(comm::Collective call) override {
    ledger_->add(name(), comm::name_of(call.kind), comm::wire_bytes(call, rank(), size()));
    if (call.kind == comm::Collective::Kind::kAllToAll) {
      for (const at::Tensor& input : call.inputs) sent_by_all_to_all_ += bytes_of(input);
      sent_by_all_to_all_ -= bytes_of(call.inputs[static_cast<size_t>(rank())]);
    }
    return inner_->run(std::move(call));
  }

  void abort(const std::string& reason) override { inner_->abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return inner_->symmetric_empty(sizes, dtype);
  }

  // The new group adds to this group's ledger, under its own name.
  std::unique_ptr<comm::Communicator> split(int color, int key, const std::string& name) override {
    auto group = inner_->split(color, key, name);
    if (group == nullptr) return nullptr;
    return std::unique_ptr<comm::Communicator>(new CountingCommunicator(std::move(group), ledger_));
  }

 private:
  CountingCommunicator(std::unique_ptr<comm::Communicator> owned, std::shared_ptr<Ledger> ledger)
      : owned_(std::move(owned)), inner_(owned_.get()), ledger_(std::move(ledger)) {}

  static int64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }

  std::unique_ptr<comm::Communicator> owned_;
  comm::Communicator* inner_;
  int64_t sent_by_all_to_all_ = 0;
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace trireme::harness
