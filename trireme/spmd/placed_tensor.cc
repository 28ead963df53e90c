#include "trireme/spmd/placed_tensor.h"

#include <algorithm>
#include <numeric>

#include <ATen/Functions.h>
#include <c10/util/SmallVector.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/redistribute.h"

namespace trireme::spmd {
namespace {

// Whether local_sizes() of `sizes` are `block`, without a vector of them.
bool is_block(const Grid& grid, const Places& places, c10::IntArrayRef block,
              c10::IntArrayRef sizes) {
  if (block.size() != sizes.size()) return false;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (block[dim] != local_size(grid, places, static_cast<int>(dim), sizes[dim])) return false;
  }
  return true;
}

}  // namespace

c10::SmallVector<int64_t, 6> dense_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dims = static_cast<int64_t>(sizes.size());
  c10::SmallVector<int64_t, 6> order(dims), dense(dims);
  std::iota(order.begin(), order.end(), 0);
  // Those of length 1 stay where they are.
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return sizes[a] != 1 && sizes[b] != 1 && strides[a] > strides[b];
  });
  int64_t next = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    dense[*dim] = next;
    next *= std::max<int64_t>(sizes[*dim], 1);
  }
  return dense;
}

PlacedMeta* placed(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(kPlacedKey)) return nullptr;
  return static_cast<PlacedMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

at::Tensor place_block(const GridPtr& grid, at::Tensor local, const Places& places,
                       c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  register_rules();
  TRIREME_CHECK(is_block(*grid, places, local.sizes(), sizes), "a block of ", local.sizes(),
                " for a tensor of ", sizes, " placed ", to_string(*grid, places), "; expected ",
                c10::IntArrayRef(local_sizes(*grid, places, sizes)));
  auto keys = c10::DispatchKeySet(
      c10::computeDispatchKey(local.scalar_type(), c10::Layout::Strided, local.device()));
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(keys.add(kPlacedKey), local.dtype(), local.device());
  if (strides.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  impl->set_backend_meta(c10::make_intrusive<PlacedMeta>(grid, std::move(local), places));
  return at::Tensor(std::move(impl));
}

at::Tensor place_whole(const GridPtr& grid, const at::Tensor& whole, const Places& places) {
  const at::Tensor block = local_under(grid, whole, places);
  const OnBlocks on_blocks;
  const auto strides = dense_strides(whole.sizes(), whole.strides());
  at::Tensor own =
      at::empty_strided(block.sizes(), dense_strides(block.sizes(), strides), block.options());
  own.copy_(block);
  return place_block(grid, own, places, whole.sizes(), strides);
}

at::Tensor local_under(const GridPtr& grid, const at::Tensor& tensor, const Places& places) {
  const OnBlocks on_blocks;
  const PlacedMeta* meta = placed(tensor);
  if (!meta) return redistribute(*grid, tensor, tensor.sizes(), Places(), places);
  return redistribute(*grid, meta->local, tensor.sizes(), meta->places, places);
}

at::Tensor whole_of(const at::Tensor& tensor) {
  const PlacedMeta* meta = placed(tensor);
  return meta ? local_under(meta->grid, tensor, Places()) : tensor.detach();
}

}  // namespace trireme::spmd
