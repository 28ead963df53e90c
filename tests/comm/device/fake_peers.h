// Ranks that are threads, with memory of fake devices that all of them see.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/ranks.h"
#include "trireme/comm/device/peer_communicator.h"
#include "trireme/comm/objects.h"

namespace trireme::comm {

// The fake device's calls are synchronous: its events are done when they are recorded.
class FakePeerMemory final : public PeerMemory {
 public:
  FakePeerMemory(Communicator& host, at::Device device, int64_t num_bytes) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device);
    // Values that no test has, to notice what nobody wrote.
    const at::Tensor mine = at::full({num_bytes}, 0xA5, options);
    for (const int64_t place : all_gather_numbers(host, reinterpret_cast<intptr_t>(&mine))) {
      const at::Tensor peer = *reinterpret_cast<const at::Tensor*>(place);
      bytes_.push_back(at::from_blob(
          peer.data_ptr(), {num_bytes}, [peer](void*) {}, options, device));
    }
    host.barrier()->wait();  // `mine` was read by all
  }
  void set_unread() override {}
  const at::Tensor& bytes_of(int rank) const override { return bytes_[rank]; }
  void record(int) override {}
  void wait(int, int) override {}

 private:
  std::vector<at::Tensor> bytes_;
};

class FakePeerDevice final : public PeerDevice {
 public:
  explicit FakePeerDevice(at::Device device) : device_(device) {}
  at::Device device() const override { return device_; }
  c10::Stream new_stream() const override { return c10::Stream(c10::Stream::DEFAULT, device_); }
  std::unique_ptr<PeerMemory> share(Communicator& host, int64_t num_bytes) const override {
    return std::make_unique<FakePeerMemory>(host, device_, num_bytes);
  }

 private:
  const at::Device device_;
};

inline void run_fake_peers(
    int size, const std::function<void(std::unique_ptr<Communicator>, at::Device)>& run,
    int64_t most_slot_bytes = PeerOptions().most_slot_bytes) {
  harness::run_ranks(size, [&](Communicator& world) {
    const at::Device device = harness::fake_device(world.rank());
    const c10::DeviceGuard guard(device);
    run(std::make_unique<PeerCommunicator>(
            world.split(0, world.rank(), "devices"), std::make_shared<FakePeerDevice>(device),
            PeerOptions{.name = "devices", .most_slot_bytes = most_slot_bytes}),
        device);
  });
}

}  // namespace trireme::comm
