// The ids of an open vocabulary in a checkpoint, in the order of their keys: what is known of each,
// and which rank has which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/embedding/open/open_rows.h"

namespace trireme::parallel {

// Shapes: [n] int64 -> the keys of the ids, with their numbers; none if these are not defined
OpenKeys keys_of_saved(const at::Tensor& ids, const at::Tensor& last_uses,
                       const at::Tensor& numbers = {});
// Shapes: [n] fp32 -> OpenKeys::uses; none if they are not defined
// Throws: CheckpointError for uses that no row has
std::vector<float> uses_of_saved(const at::Tensor& uses, const std::string& table);
// Throws: CheckpointError when a key has a row and waits for one
void check_waiting(const OpenKeys& rows, const OpenKeys& waiting, const std::string& table);
// Shapes: n keys -> [n] int64
at::Tensor ids_to_save(std::vector<int64_t> keys);

// [p + 1] where each rank's ids begin, and their end. All begin at 0 if each rank has all places.
// places: [p] those of each rank
// Throws: CheckpointError unless the ids are int64 numbers [n] in the order of keys, each once
std::vector<int64_t> cuts_of_saved(const at::Tensor& ids, const std::string& table,
                                   std::span<const mesh::Range> places);

// The layout of tensors of shape [n, ...] whose rows are cut among the ranks, or replicated on all.
// sizes: of any rank's tensor
mesh::Layout layout_of_saved(at::IntArrayRef sizes, const mesh::Axis& axis,
                             const mesh::Placement& placement, const std::vector<int64_t>& cuts);

}  // namespace trireme::parallel
