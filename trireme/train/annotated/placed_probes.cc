#include "trireme/train/annotated/placed_probes.h"

#include "trireme/spmd/placed_tensor.h"

namespace trireme::train {

void PlacedProbes::put(const verify::ProbedBlock& block) {
  const spmd::PlacedMeta* meta = spmd::placed(block.values);
  if (meta == nullptr) return listener_->put(block);
  verify::ProbedBlock own = block;
  if (block.boxes.size() != 1) {  // rows by number
    own.values = spmd::whole_of(block.values);
    return listener_->put(own);
  }
  // One box says it, and what several ranks have whole is compared.
  spmd::Places places = meta->places;
  for (spmd::Place& place : places) {
    if (place.is_partial() || place.period != 0) place = {};
  }
  const spmd::GridPtr grid = meta->grid;
  own.values = spmd::local_under(grid, block.values, places);
  for (int dim = 0; dim < static_cast<int>(block.values.dim()); ++dim) {
    const mesh::Range range = spmd::local_range(*grid, places, dim, block.values.size(dim));
    own.boxes.front().offset[static_cast<size_t>(dim)] += range.offset;
    own.boxes.front().size[static_cast<size_t>(dim)] = range.size;
  }
  if (own.values.numel() > 0) listener_->put(own);
}

at::Tensor PlacedProbes::replayed(const verify::ProbedBlock& block) {
  return listener_->replayed(block);
}

std::optional<uint64_t> PlacedProbes::perturbation() const { return listener_->perturbation(); }

}  // namespace trireme::train
