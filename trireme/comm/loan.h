// Messages that are read in place: what a recv borrows, and the loan of a message that another work
// receives.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// A recv that borrows has no tensor to fill: the transport makes `data`, over the sender's memory
// or its own, before the recv is done. Nobody else may share it then.
struct Borrowed {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  at::Tensor data{};

  int64_t num_bytes() const {
    return c10::multiply_integers(sizes) * static_cast<int64_t>(options.dtype().itemsize());
  }
};

// Where nothing can be borrowed: makes `call` a recv into a new tensor, if it is one that borrows.
void receive_copy(Collective& call);

// Thread safety: that of its work.
class ReceivedLoan : public Loan {
 public:
  // `data` must be set when `work` is done, and must not be shared with anyone then.
  ReceivedLoan(WorkPtr work, std::shared_ptr<const at::Tensor> data)
      : work_(std::move(work)), data_(std::move(data)) {}

  void wait() override { work_->wait(); }
  bool wait_for(std::chrono::milliseconds limit) override { return work_->wait_for(limit); }
  bool poll() override { return work_->poll(); }
  void abort() override { work_->abort(); }
  int source() const override { return work_->source(); }
  const at::Tensor& data() const override { return *data_; }

 private:
  WorkPtr work_;
  std::shared_ptr<const at::Tensor> data_;
};

}  // namespace trireme::comm
