// States in memory: that of the device they are worked on, or the host's. Between a GPU and the
// host a chunk is copied there and back; on one device a visit works on the states themselves.
#pragma once

#include <vector>

#include "trireme/train/offload/state_store.h"

namespace trireme::train {

class MemoryStore : public StateStore {
 public:
  MemoryStore(StatePlan plan, at::Device home);

  void visit(std::span<const size_t> chunks, const Visit& visit) override;
  void describe(size_t tensor, checkpoint::Entry& entry) override;

 private:
  StatePlan plan_;
  std::vector<at::Tensor> tensors_;  // one a tensor of the plan, on `home`
};

}  // namespace trireme::train
