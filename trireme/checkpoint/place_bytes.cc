#include "trireme/checkpoint/place_bytes.h"

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {
namespace {

// Cuts ranges of elements into blocks, dimension by dimension.
class Cutter {
 public:
  Cutter(const std::vector<int64_t>& shape, const UseBlock& use)
      : shape_(shape), use_(use), block_{std::vector<int64_t>(shape.size(), 0), shape} {}

  // [first, last) counted from where dimension `dim` begins, which is element `base`.
  void cut(size_t dim, int64_t base, int64_t first, int64_t last) {
    if (dim == shape_.size()) return use_(block_, base);
    int64_t row = 1;
    for (size_t d = dim + 1; d < shape_.size(); ++d) row *= shape_[d];
    while (first < last) {
      const int64_t index = first / row, inside = first % row;
      const int64_t whole_rows = inside == 0 ? last / row - index : 0;
      block_.offset[dim] = index;
      block_.size[dim] = std::max<int64_t>(whole_rows, 1);
      if (whole_rows > 0) {
        use_(block_, base + first);
        first += whole_rows * row;
      } else {
        const int64_t end = std::min(last, (index + 1) * row);
        cut(dim + 1, base + index * row, inside, end - index * row);
        first = end;
      }
      block_.offset[dim] = 0;
      block_.size[dim] = shape_[dim];
    }
  }

 private:
  const std::vector<int64_t>& shape_;
  const UseBlock& use_;
  mesh::Box block_;
};

// to.copy_(from), without its cost for each of many small parts.
void copy_values(const at::Tensor& from, const at::Tensor& to) {
  const bool are_alike = to.is_cpu() && to.scalar_type() == from.scalar_type() &&
                         to.is_contiguous() && from.is_contiguous();
  if (!are_alike) {
    to.copy_(from);
    return;
  }
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

// The part of `tensor` that `part` covers. `box` is the place of `tensor`.
at::Tensor view_part(at::Tensor tensor, const mesh::Box& box, const mesh::Box& part) {
  for (size_t d = 0; d < part.size.size(); ++d) {
    if (part.size[d] == box.size[d]) continue;
    tensor = tensor.narrow(static_cast<int64_t>(d), part.offset[d] - box.offset[d], part.size[d]);
  }
  return tensor;
}

}  // namespace

void for_each_block(const std::vector<int64_t>& shape, int64_t first, int64_t last,
                    const UseBlock& use) {
  if (first < last) Cutter(shape, use).cut(0, 0, first, last);
}

void place_bytes(const PieceBytes& from, const mesh::Box& box, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  const uint64_t width = c10::elementSize(from.dtype);
  TRIREME_ASSERT(from.at % width == 0 && from.bytes.size() % width == 0, from.bytes.size(),
                 " bytes at ", from.at, " are no whole elements of ", width);
  const auto first = static_cast<int64_t>(from.at / width);
  const auto last = first + static_cast<int64_t>(from.bytes.size() / width);
  for_each_block(from.box.size, first, last, [&](const mesh::Box& cut, int64_t element) {
    mesh::Box block = cut;
    for (size_t d = 0; d < block.offset.size(); ++d) block.offset[d] += from.box.offset[d];
    const mesh::Box part = mesh::intersect(block, box);
    if (part.numel() == 0) return;
    // from_blob takes no const pointer. Nobody writes through it.
    const std::byte* const data = from.bytes.data() + static_cast<size_t>(element - first) * width;
    const at::Tensor source = at::from_blob(const_cast<std::byte*>(data), block.size,
                                            at::TensorOptions().dtype(from.dtype));
    copy_values(view_part(source, block, part), view_part(target, box, part));
  });
}

}  // namespace trireme::checkpoint::inline internal
