// Probes of placed tensors: whoever listens gets this rank's block, and its box in the whole.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/probe.h"

namespace trireme::train {

// Between a model on a grid and its listener. It stands until the backward of what it was told.
// Thread safety: as the grid's operators, one thread at a time.
class PlacedProbes final : public verify::ProbeSink {
 public:
  // Whom it tells from now on; outlives the backward of what is probed.
  void serve(verify::ProbeSink& listener) { listener_ = &listener; }

  // Tensors that are not placed go on as they are.
  // Collective: the axes of the grid on which the tensor is a partial sum, or is split within runs
  //             of rows
  void put(const verify::ProbedBlock& block) override;
  at::Tensor replayed(const verify::ProbedBlock& block) override;
  std::optional<uint64_t> perturbation() const override;

 private:
  verify::ProbeSink* listener_ = nullptr;
};

}  // namespace trireme::train
