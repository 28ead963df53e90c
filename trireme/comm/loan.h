// The loan of a message that another work receives.
#pragma once

#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

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
