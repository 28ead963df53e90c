// Every operation of a group whose backend does the work itself, on tensors of any device: gloo's
// on CPUs, NCCL's on GPUs.
#pragma once

#include <c10/core/Device.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

void check_native_reductions(Communicator& group, c10::Device device);
void check_native_moves(Communicator& group, c10::Device device);
void check_native_messages(Communicator& group, c10::Device device);
void check_native_split(Communicator& group, c10::Device device);

}  // namespace trireme::comm
