// Runs calls with tensors of the host on a group for tensors of a device, so that the suite of the
// transports checks such a group too.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/comm/loan.h"

namespace trireme::comm {

class OnDevice final : public Communicator {
  using Tensors = std::vector<at::Tensor>;

 public:
  OnDevice(std::unique_ptr<Communicator> group, at::Device device)
      : group_(std::move(group)), device_(device) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  bool reduces_in_rank_order() const override { return group_->reduces_in_rank_order(); }

  WorkPtr run(Collective call) override {
    receive_copy(call);
    Collective moved = call;
    if (call.data.defined()) moved.data = on(call.data);
    moved.outputs = on(call.outputs);
    moved.inputs = on(call.inputs);
    Tensors targets = call.outputs, results = moved.outputs;
    if (call.writes_data(rank())) {
      targets.push_back(call.data);
      results.push_back(moved.data);
    }
    auto done = std::make_shared<BackWork>(group_->run(std::move(moved)), targets, results);
    if (!call.options.background) done->wait();
    return done;
  }
  void abort(const std::string& reason) override { group_->abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return group_->symmetric_empty(sizes, dtype);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    auto part = group_->split(color, key, name);
    return part == nullptr ? nullptr : std::make_unique<OnDevice>(std::move(part), device_);
  }

 private:
  // Copies results back when the work is done.
  class BackWork final : public Work {
   public:
    BackWork(WorkPtr work, Tensors targets, Tensors results)
        : work_(std::move(work)), targets_(std::move(targets)), results_(std::move(results)) {}
    void wait() override {
      work_->wait();
      finish();
    }
    bool wait_for(std::chrono::milliseconds limit) override {
      const bool is_done = work_->wait_for(limit);
      if (is_done) finish();
      return is_done;
    }
    bool poll() override { return work_->poll(); }
    void abort() override { work_->abort(); }
    int source() const override { return work_->source(); }

   private:
    void finish() {
      for (size_t i = 0; i < targets_.size(); ++i) targets_[i].copy_(results_[i]);
      targets_.clear();
    }
    WorkPtr work_;
    Tensors targets_;
    Tensors results_;
  };

  at::Tensor on(const at::Tensor& tensor) const { return tensor.to(device_); }
  Tensors on(const Tensors& tensors) const {
    Tensors moved;
    for (const at::Tensor& tensor : tensors) moved.push_back(on(tensor));
    return moved;
  }

  std::unique_ptr<Communicator> group_;
  at::Device device_;
};

}  // namespace trireme::comm
