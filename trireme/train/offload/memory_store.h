// States in memory, on the device that works on them or on the host. Between a GPU and the host,
// each chunk is copied there and back. On one device, a visit works on the states directly.
#pragma once

#include <vector>

#include "trireme/train/offload/state_store.h"

namespace trireme::train::inline internal {

class MemoryStore : public StateStore {
 public:
  MemoryStore(StatePlan plan, at::Device home);

  void visit(std::span<const size_t> chunks, const Visit& visit) override;
  void describe(size_t tensor, checkpoint::Entry& entry) override;

 private:
  StatePlan plan_;
  std::vector<at::Tensor> tensors_;  // one per tensor of the plan, on `home`
};

}  // namespace trireme::train::inline internal
