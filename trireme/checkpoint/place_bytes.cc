#include "trireme/checkpoint/place_bytes.h"

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint {

// A chunk is a range of a box's bytes, and its ends may lie within rows. Cutter splits such a range
// into boxes: the rest of a row, whole rows, the beginning of a row, again in each dimension. There
// are at most two partial blocks per dimension, so a chunk becomes a few copies and never a loop
// over elements. Each block is then intersected with the box that the target holds. Source tensors
// are views of mapped or received bytes; nothing is copied before its place is known.

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
      // Only at the beginning of a row can whole rows be taken.
      const int64_t whole_rows = inside == 0 ? last / row - index : 0;
      block_.offset[dim] = index;
      block_.size[dim] = std::max<int64_t>(whole_rows, 1);
      if (whole_rows > 0) {
        // The rest of this dimension is complete, so deeper ones need not be looked at.
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
  // memcpy for what training resumes at, and copy_ for another device or dtype.
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
    // narrow() costs an operator, and most blocks span most dimensions.
    if (part.size[d] == box.size[d]) continue;
    tensor = tensor.narrow(static_cast<int64_t>(d), part.offset[d] - box.offset[d], part.size[d]);
  }
  return tensor;
}

// The elements of each row follow each other.
bool has_whole_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.size(0) == 0 || tensor.select(0, 0).is_contiguous());
}

// to[places[i]] = from[i], without the cost of an operator for rows that are copied as they are.
void copy_rows(const at::Tensor& from, std::span<const int64_t> places, const at::Tensor& to) {
  if (to.scalar_type() == from.scalar_type() && has_whole_rows(to) && has_whole_rows(from)) {
    const auto width = static_cast<int64_t>(from.element_size());
    const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
    auto* const target = static_cast<std::byte*>(to.mutable_data_ptr());
    const auto row_bytes = static_cast<size_t>(from.select(0, 0).nbytes());
    for (const int64_t place : places) {
      std::memcpy(target + place * to.stride(0) * width, source, row_bytes);
      source += from.stride(0) * width;
    }
    return;
  }
  at::Tensor index = at::empty({from.size(0)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(places, index.mutable_data_ptr<int64_t>());
  to.index_copy_(0, index.to(to.device()), from.to(to.options()));
}

}  // namespace

void for_each_block(const std::vector<int64_t>& shape, int64_t first, int64_t last,
                    const UseBlock& use) {
  if (first < last) Cutter(shape, use).cut(0, 0, first, last);
}

void place_bytes(const PieceBytes& from, const mesh::Box& box, const at::Tensor& target) {
  // The target may be a parameter that requires gradients.
  const at::NoGradGuard no_grad;
  const uint64_t width = c10::elementSize(from.dtype);
  TRIREME_ASSERT(from.at % width == 0 && from.bytes.size() % width == 0, from.bytes.size(),
                 " bytes at ", from.at, " are not a whole number of elements of ", width);
  // The bytes may begin within the box: `at` says where.
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

void place_rows(const PieceRows& from, const mesh::Box& box, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  const mesh::Box part = mesh::intersect(from.box, box);
  if (part.numel() == 0) return;
  const auto first = std::ranges::lower_bound(from.rows, part.offset[0]);
  const auto last = std::ranges::lower_bound(from.rows, part.offset[0] + part.size[0]);
  if (first == last) return;
  // The rows lie one after the other in the patch, wherever they are in the tensor.
  mesh::Box block = from.box;  // as if the rows followed each other
  block.offset[0] = 0;
  block.size[0] = std::ssize(from.rows);
  mesh::Box taken = part;
  taken.offset[0] = first - from.rows.begin();
  taken.size[0] = last - first;
  mesh::Box columns = part;
  columns.offset[0] = box.offset[0];
  columns.size[0] = box.size[0];
  // from_blob takes no const pointer. Nobody writes through it.
  const at::Tensor source = at::from_blob(const_cast<std::byte*>(from.bytes.data()), block.size,
                                          at::TensorOptions().dtype(from.dtype));
  std::vector<int64_t> places(first, last);
  for (int64_t& place : places) place -= box.offset[0];
  copy_rows(view_part(source, block, taken), places, view_part(target, box, columns));
}

}  // namespace trireme::checkpoint
