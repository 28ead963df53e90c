// An accelerator for machines without one. It takes the place of libtorch's device type "hpu",
// which its CPU build names and does not implement. Its operators run on the host. As with a GPU,
// the host cannot read its memory (a kernel that tries is killed by SIGSEGV), a tensor of the host
// is refused beside one of the device, and backward runs on a thread of the device. Its calls are
// synchronous.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::harness {

inline constexpr int kNumFakeDevices = 8;

// Fake device number `index`. Ranks that are threads of one process need one each, as their
// backward would otherwise share a thread.
at::Device fake_device(int index);

// So far, on all fake devices; without those that make tensors, views and copies.
int64_t num_device_operators();

// The tensor's own memory as the host sees it.
at::Tensor seen_by_host(const at::Tensor& tensor);

// A group for tensors of fake devices, as NCCL's is for those of GPUs: refuses others. `host`
// moves the bytes.
std::unique_ptr<comm::Communicator> make_fake_device_group(
    std::unique_ptr<comm::Communicator> host);

// Runs `function` on `size` threads, each with a group for tensors of the host and of its device.
void run_device_ranks(int size,
                      const std::function<void(comm::Communicator&, at::Device)>& function);

}  // namespace trireme::harness
