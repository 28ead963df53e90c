#include "trireme/comm/device_group.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/known_losses.h"
#include "trireme/comm/loan.h"

namespace trireme::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

class DeviceGroup final : public Communicator, public KnowsLosses {
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
  std::string known_loss() const override {
    const auto* const host = dynamic_cast<const KnowsLosses*>(host_.get());
    return host == nullptr ? "" : host->known_loss();
  }

  WorkPtr run(Collective call) override {
    Communicator& group = group_of(call);
    if (!call.is_message() || &group == host_.get()) return group.run(std::move(call));
    // A loan is host memory, and this tensor is to be on the device.
    receive_copy(call);
    return run_staged(*host_, std::move(call));
  }

  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return host_->symmetric_empty(sizes, dtype);
  }
  void abort(const std::string& reason) override {
    // The host's group first: its ranks learn the reason, which NCCL does not pass on.
    host_->abort(reason);
    device_->abort(reason);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    // Both on every rank, also where the color is negative: a split is a collective of each of the
    // groups.
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
  Communicator& group_of(const Collective& call) {
    if (call.borrowed) return of(call.borrowed->options.device());
    Communicator& group = of(call.first_tensor());
    for (const Tensors* list : {&call.outputs, &call.inputs}) {
      for (const at::Tensor& other : *list) {
        TRIREME_CHECK(!other.defined() || &of(other) == &group, "a call on group ", name(),
                      " got tensors of the host and of its device; expected all on one of them");
      }
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

namespace {

// Calls on_end(succeeded) when the first wait sees how `work` ends.
class StagedMessage final : public Work {
 public:
  StagedMessage(WorkPtr work, std::function<void(bool)> on_end)
      : work_(std::move(work)), on_end_(std::move(on_end)) {}

  void wait() override {
    watched([&] { return work_->wait(), true; });
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    return watched([&] { return work_->wait_for(limit); });
  }
  bool poll() override { return work_->poll(); }
  void abort() override { work_->abort(); }
  int source() const override { return work_->source(); }

 private:
  template <typename Wait>
  bool watched(const Wait& wait) {
    bool is_done = false;
    try {
      is_done = wait();
    } catch (...) {
      if (on_end_) std::exchange(on_end_, nullptr)(false);
      throw;
    }
    if (is_done && on_end_) std::exchange(on_end_, nullptr)(true);
    return is_done;
  }

  WorkPtr work_;
  std::function<void(bool)> on_end_;
};

}  // namespace

WorkPtr run_staged(Communicator& host, Collective message, std::function<void(bool)> on_end) {
  const at::Tensor target = message.data;
  const bool is_recv = message.kind == Collective::Kind::kRecv;
  const bool is_background = message.options.background;
  // Pinned, so that the copy to the device need not wait.
  const at::Tensor copy =
      is_recv ? at::empty(target.sizes(), target.options().device(at::kCPU).pinned_memory(true))
              : target.to(at::kCPU);
  message.data = copy;
  WorkPtr work;
  try {
    work = host.run(std::move(message));
  } catch (...) {
    if (on_end) on_end(false);
    throw;
  }
  work = std::make_shared<StagedMessage>(std::move(work), [=, on_end = std::move(on_end)](bool ok) {
    // In the waiter's thread and on its current stream, so that what it launches next comes after
    // the copy.
    if (is_recv && ok) target.detach().copy_(copy, /*non_blocking=*/true);
    if (on_end) on_end(ok);
  });
  if (!is_background) work->wait();
  return work;
}

}  // namespace trireme::comm
