// Tensors whose values lie in blocks on a grid's ranks. To torch such a tensor has the sizes of the
// whole: modules and autograd take it as it is. Operators on it run by their rules on the ranks'
// blocks, see dispatch.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include "trireme/spmd/copied_view.h"
#include "trireme/spmd/place.h"

namespace trireme::spmd {

// The dispatch key of placed tensors, below autograd. A later libtorch may take it for itself: then
// the tests of dispatch.h fail.
inline constexpr c10::DispatchKey kPlacedKey = c10::DispatchKey::Fake;

// What a placed tensor carries. Copies of its TensorImpl, such as those that autograd saves, share
// it; views have their own, of the same memory.
struct PlacedMeta : c10::BackendMeta {
  PlacedMeta(GridPtr on, at::Tensor block, Places split)
      : grid(std::move(on)), local(std::move(block)), places(std::move(split)) {}
  c10::intrusive_ptr<c10::BackendMeta> clone(
      const c10::intrusive_ptr<c10::BackendMeta>& self) const override {
    return self;
  }

  // The name of the parameter that it is, kept by the grid's log; null: of none.
  const std::string* parameter = nullptr;

  GridPtr grid;
  at::Tensor local;  // this rank's block
  Places places;
  // Of a view, or a view of a view, whose block is a copy.
  std::shared_ptr<const CopiedView> copied{};
};

// Null for a tensor that is not placed: each rank has it whole, with the same values.
PlacedMeta* placed(const at::Tensor& tensor);

// The tensor of `sizes` of which this rank's block is `local`. It has the dtype and device of the
// block, and no memory but it.
// strides: what the tensor shows of itself, whatever the block's are; empty: contiguous. They must
//          be the same on every rank, because autograd's formulas depend on them.
// Throws:  ConfigError when the block has other sizes than `places` gives it
at::Tensor place_block(const GridPtr& grid, at::Tensor local, const Places& places,
                       c10::IntArrayRef sizes, c10::IntArrayRef strides = {});
// Dense strides for `sizes`, the dimensions in the order of `strides`.
c10::SmallVector<int64_t, 6> dense_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// The same for a tensor that each rank has whole. Keeps this rank's part only.
at::Tensor place_whole(const GridPtr& grid, const at::Tensor& whole, const Places& places);

// The block of a placed tensor under `places`; of another tensor its part.
// Collective: as redistribute()
at::Tensor local_under(const GridPtr& grid, const at::Tensor& tensor, const Places& places);
// The whole tensor, on each rank. Not differentiable.
// Collective: as redistribute()
at::Tensor whole_of(const at::Tensor& tensor);

}  // namespace trireme::spmd
