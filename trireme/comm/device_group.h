// A group of ranks that each have a device beside their host's memory, such as a GPU, and the
// messages of the device's tensors, which go through the host's memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <c10/core/DeviceType.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Collectives on tensors of `type` go over `device`, everything else over `host`. Both have the
// same ranks in the same order. The group promises of each what that one promises: its sums are in
// rank order if the device's are. symmetric_empty() is the host's memory, as only that can be
// shared.
// A send or recv of a device's tensor is copied through the host's memory: NCCL has no tags, and
// matches messages between two ranks by the order of the calls in both directions together, which
// is not the same on both ranks of a pipeline.
// Throws: ConfigError from collectives with tensors of both
std::unique_ptr<Communicator> make_device_group(std::unique_ptr<Communicator> host,
                                                std::unique_ptr<Communicator> device,
                                                c10::DeviceType type);

// The name of the device's part of group `name`, such as "world@cuda".
std::string name_on_device(const std::string& name, c10::DeviceType type);

// Like host.run() of a send or recv, for a tensor on another device. A received tensor has its
// values for work that the current stream of the waiting thread is given after wait(). on_end is
// called once, when a wait sees how the message ends.
WorkPtr run_staged(Communicator& host, Collective message,
                   std::function<void(bool succeeded)> on_end = {});

}  // namespace trireme::comm
