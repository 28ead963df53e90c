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

  comm::WorkPtr all_reduce(at::Tensor data, comm::Options options) override {
    count("all_reduce", 2 * others() * bytes_of(data) / size());
    return inner_->all_reduce(std::move(data), options);
  }
  comm::WorkPtr reduce(at::Tensor data, int root, comm::Options options) override {
    count("reduce", rank() == root ? bytes_of(data) : others() * bytes_of(data) / size());
    return inner_->reduce(std::move(data), root, options);
  }
  comm::WorkPtr broadcast(at::Tensor data, int root, comm::Options options) override {
    count("broadcast", rank() == root ? others() * bytes_of(data) : bytes_of(data));
    return inner_->broadcast(std::move(data), root, options);
  }
  comm::WorkPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                           comm::Options options) override {
    count("all_gather", bytes_of(outputs) - bytes_of(input));
    return inner_->all_gather(std::move(outputs), std::move(input), options);
  }
  comm::WorkPtr reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                               comm::Options options) override {
    count("reduce_scatter", others() * bytes_of(inputs) / size());
    return inner_->reduce_scatter(std::move(output), std::move(inputs), options);
  }
  comm::WorkPtr all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                           comm::Options options) override {
    count("all_to_all", others() * bytes_of(inputs) / size());
    sent_by_all_to_all_ += bytes_of(inputs) - bytes_of(inputs[static_cast<size_t>(rank())]);
    return inner_->all_to_all(std::move(outputs), std::move(inputs), options);
  }
  comm::WorkPtr gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                       comm::Options options) override {
    count("gather", rank() == root ? others() * bytes_of(input) : bytes_of(input));
    return inner_->gather(std::move(outputs), std::move(input), root, options);
  }
  comm::WorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                        comm::Options options) override {
    count("scatter", rank() == root ? others() * bytes_of(output) : bytes_of(output));
    return inner_->scatter(std::move(output), std::move(inputs), root, options);
  }
  comm::WorkPtr send(at::Tensor data, int peer, comm::Options options) override {
    count("send", bytes_of(data));
    return inner_->send(std::move(data), peer, options);
  }
  comm::WorkPtr recv(at::Tensor data, int peer, comm::Options options) override {
    count("recv", bytes_of(data));
    return inner_->recv(std::move(data), peer, options);
  }
  comm::LoanPtr borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                       comm::Options options) override {
    count("recv", c10::multiply_integers(sizes) * static_cast<int64_t>(dtype.dtype().itemsize()));
    return inner_->borrow(sizes, dtype, peer, options);
  }
  comm::WorkPtr barrier(comm::Options options) override {
    count("barrier", 0);
    return inner_->barrier(options);
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
  static int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
    int64_t sum = 0;
    for (const at::Tensor& tensor : tensors) sum += bytes_of(tensor);
    return sum;
  }
  int64_t others() const { return size() - 1; }
  void count(const char* operation, int64_t num_bytes) {
    ledger_->add(name(), operation, num_bytes);
  }

  std::unique_ptr<comm::Communicator> owned_;
  comm::Communicator* inner_;
  int64_t sent_by_all_to_all_ = 0;
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace trireme::harness
