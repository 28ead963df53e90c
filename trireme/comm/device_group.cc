#include "trireme/comm/device_group.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

// A message that is copied to its device when it has arrived.
class StagedRecv final : public Work {
 public:
  StagedRecv(WorkPtr work, at::Tensor copy, at::Tensor target)
      : work_(std::move(work)), copy_(std::move(copy)), target_(std::move(target)) {}

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
    if (!copy_.defined()) return;
    target_.detach().copy_(copy_, /*non_blocking=*/true);
    copy_.reset();
  }

  WorkPtr work_;
  at::Tensor copy_;
  at::Tensor target_;
};

class DeviceGroup final : public Communicator {
 public:
  DeviceGroup(std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> device,
              c10::DeviceType type)
      : host_(std::move(host)), device_(std::move(device)), type_(type) {
    TRIREME_ASSERT(host_->rank() == device_->rank() && host_->size() == device_->size(), "rank ",
                   host_->rank(), " of ", host_->size(), " and ", device_->rank(), " of ",
                   device_->size());
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  bool reduces_in_rank_order() const override { return device_->reduces_in_rank_order(); }

  WorkPtr all_reduce(at::Tensor data, Options options) override {
    return of(data).all_reduce(std::move(data), options);
  }
  WorkPtr reduce(at::Tensor data, int root, Options options) override {
    return of(data).reduce(std::move(data), root, options);
  }
  WorkPtr broadcast(at::Tensor data, int root, Options options) override {
    return of(data).broadcast(std::move(data), root, options);
  }
  WorkPtr all_gather(Tensors outputs, at::Tensor input, Options options) override {
    return of(input, outputs).all_gather(std::move(outputs), std::move(input), options);
  }
  WorkPtr reduce_scatter(at::Tensor output, Tensors inputs, Options options) override {
    return of(output, inputs).reduce_scatter(std::move(output), std::move(inputs), options);
  }
  WorkPtr all_to_all(Tensors outputs, Tensors inputs, Options options) override {
    Communicator& group = inputs.empty() ? *host_ : of(of(inputs[0], inputs), outputs);
    return group.all_to_all(std::move(outputs), std::move(inputs), options);
  }
  WorkPtr gather(Tensors outputs, at::Tensor input, int root, Options options) override {
    return of(input, outputs).gather(std::move(outputs), std::move(input), root, options);
  }
  WorkPtr scatter(at::Tensor output, Tensors inputs, int root, Options options) override {
    return of(output, inputs).scatter(std::move(output), std::move(inputs), root, options);
  }
  WorkPtr send(at::Tensor data, int peer, Options options) override {
    return host_->send(data.defined() ? data.to(at::kCPU) : data, peer, options);
  }
  WorkPtr recv(at::Tensor data, int peer, Options options) override {
    if (&of(data) == host_.get()) return host_->recv(std::move(data), peer, options);
    const at::Tensor copy =
        at::empty(data.sizes(), data.options().device(at::kCPU).pinned_memory(true));
    auto work = std::make_shared<StagedRecv>(host_->recv(copy, peer, options), copy, data);
    if (!options.background) work->wait();
    return work;
  }
  LoanPtr borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                 Options options) override {
    return dtype.device().is_cpu() ? host_->borrow(sizes, dtype, peer, options)
                                   : Communicator::borrow(sizes, dtype, peer, options);
  }
  WorkPtr barrier(Options options) override { return host_->barrier(options); }

  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return host_->symmetric_empty(sizes, dtype);
  }
  void abort(const std::string& reason) override {
    host_->abort(reason);
    device_->abort(reason);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    auto host = host_->split(color, key, name);
    auto device = device_->split(color, key, name_on_device(name, type_));
    if (host == nullptr) return nullptr;
    return make_device_group(std::move(host), std::move(device), type_);
  }

 private:
  Communicator& of(at::Device device) { return device.type() == type_ ? *device_ : *host_; }
  // An undefined tensor is the host's to refuse.
  Communicator& of(const at::Tensor& tensor) {
    return tensor.defined() ? of(tensor.device()) : *host_;
  }
  Communicator& of(const at::Tensor& first, const Tensors& others) { return of(of(first), others); }
  Communicator& of(Communicator& group, const Tensors& others) {
    for (const at::Tensor& other : others) {
      TRIREME_CHECK(!other.defined() || &of(other) == &group, "a call on group ", name(),
                    " got tensors of the host and of its device; expected all on one of them");
    }
    return group;
  }

  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> device_;
  c10::DeviceType type_;
};

}  // namespace

std::unique_ptr<Communicator> make_device_group(std::unique_ptr<Communicator> host,
                                                std::unique_ptr<Communicator> device,
                                                c10::DeviceType type) {
  return std::make_unique<DeviceGroup>(std::move(host), std::move(device), type);
}

std::string name_on_device(const std::string& name, c10::DeviceType type) {
  return concat(name, "@", c10::DeviceTypeName(type, /*lower_case=*/true));
}

}  // namespace trireme::comm
