// Ranks that share one GPU, by CUDA's handles to memory and events of other processes. They need no
// NCCL, which refuses two ranks on one GPU, and their sums are in rank order: the bits of a layout
// are those of every other transport of ours, and any layout runs on a machine with one GPU.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {

// False when this build's libtorch has no CUDA.
bool has_cuda_ipc();

// A group for tensors of the current CUDA device, which must be the same GPU for all ranks.
// peer_communicator.h says what a call costs. `host`: a group of the same ranks, which are
// processes of one host; only this group may use it. name: in errors.
// Collective: every rank of `host`
// Throws:     ConfigError without CUDA, or when the ranks' GPUs differ
std::unique_ptr<Communicator> make_cuda_ipc_group(std::unique_ptr<Communicator> host,
                                                  const std::string& name,
                                                  GroupRecorder recorder = {});

}  // namespace trireme::comm
