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

// Dense strides for `sizes` in the order of the block's strides; 0 where the block repeats.
c10::SmallVector<int64_t, 6> strides_like(const at::Tensor& local, c10::IntArrayRef sizes) {
  const int64_t dims = local.dim();
  c10::SmallVector<int64_t, 6> order(dims), strides(dims);
  std::iota(order.begin(), order.end(), 0);
  if (!local.is_contiguous()) {
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      if (local.size(a) == 1 || local.size(b) == 1) return false;
      return local.stride(a) > local.stride(b);
    });
  }
  int64_t next = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const bool repeats = local.size(*dim) > 1 && local.stride(*dim) == 0;
    strides[*dim] = repeats ? 0 : next;
    if (!repeats) next *= std::max<int64_t>(sizes[*dim], 1);
  }
  return strides;
}

}  // namespace

PlacedMeta* placed(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(kPlacedKey)) return nullptr;
  return static_cast<PlacedMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

at::Tensor place_block(const GridPtr& grid, at::Tensor local, const Places& places,
                       c10::IntArrayRef sizes) {
  register_rules();
  TRIREME_CHECK(local.sizes() == c10::IntArrayRef(local_sizes(*grid, places, sizes)), "a block of ",
                local.sizes(), " for a tensor of ", sizes, " placed ", to_string(*grid, places),
                "; expected ", c10::IntArrayRef(local_sizes(*grid, places, sizes)));
  auto keys = c10::DispatchKeySet(
      c10::computeDispatchKey(local.scalar_type(), c10::Layout::Strided, local.device()));
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(keys.add(kPlacedKey), local.dtype(), local.device());
  impl->set_sizes_and_strides(sizes, strides_like(local, sizes));
  impl->set_backend_meta(c10::make_intrusive<PlacedMeta>(grid, std::move(local), places));
  return at::Tensor(std::move(impl));
}

at::Tensor place_whole(const GridPtr& grid, const at::Tensor& whole, const Places& places) {
  const at::Tensor block = local_under(grid, whole, places);
  const OnBlocks on_blocks;
  return place_block(grid, block.clone(at::MemoryFormat::Contiguous), places, whole.sizes());
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
