#include "trireme/checkpoint/tensor_boxes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <c10/util/ArrayRef.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/chunk/chunk.h"

namespace trireme::checkpoint {
namespace {

// 128 MiB of corners.
constexpr size_t kMaxCorners = size_t{1} << 23;

// A corner of a box: its index in a grid of lengths shape + 1, doubled, plus 1 if it counts -1. The
// type is wide enough, because the grid has at most 2^64 2^23 points.
__extension__ using Corner = unsigned __int128;

bool lies_inside(const mesh::Box& box, std::span<const int64_t> shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.offset[d] > shape[d] ||
        box.size[d] > shape[d] - box.offset[d])
      return false;
  }
  return true;
}

// The dimensions that some box does not span completely.
std::vector<size_t> split_dims(std::span<const int64_t> shape,
                               const std::vector<mesh::Box>& boxes) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    // A dimension that every box spans has no corner of its own, and each such one halves the work.
    if (std::ranges::any_of(boxes, [&](const auto& box) { return box.size[d] != shape[d]; }))
      dims.push_back(d);
  }
  return dims;
}

class Grid {
 public:
  Grid(std::span<const int64_t> shape, std::vector<size_t> dims)
      : shape_(shape), dims_(std::move(dims)) {}

  // Adds every corner with its sign by inclusion and exclusion, inverted if `sign` is 1.
  void add_corners(const mesh::Box& box, unsigned sign, std::vector<Corner>& corners) const {
    for (size_t ends = 0; ends < size_t{1} << dims_.size(); ++ends) {
      Corner index = 0;
      // The sign in the lowest bit keeps equal points beside each other in the sort.
      unsigned parity = sign;
      for (size_t i = 0; i < dims_.size(); ++i) {
        const size_t d = dims_[i];
        const bool is_end = (ends >> i & 1) != 0;
        parity ^= is_end ? 1u : 0u;
        index = index * (static_cast<Corner>(shape_[d]) + 1) +
                static_cast<Corner>(box.offset[d] + (is_end ? box.size[d] : 0));
      }
      corners.push_back(index << 1 | parity);
    }
  }

  // Converts a grid point to an element of the tensor.
  std::vector<int64_t> element_at(Corner index) const {
    std::vector<int64_t> element(shape_.size(), 0);
    for (size_t i = dims_.size(); i-- > 0;) {
      const Corner length = static_cast<Corner>(shape_[dims_[i]]) + 1;
      element[dims_[i]] = static_cast<int64_t>(index % length);
      index /= length;
    }
    return element;
  }

 private:
  std::span<const int64_t> shape_;
  std::vector<size_t> dims_;
};

}  // namespace

std::optional<int64_t> num_bytes_of(std::span<const int64_t> shape, size_t bytes_per_element) {
  if (shape.size() > kMaxDims) return std::nullopt;
  auto bytes = static_cast<int64_t>(bytes_per_element);
  bool is_empty = false;
  for (const int64_t length : shape) {
    if (length < 0) return std::nullopt;
    // A length of 0 must not hide an overflow of the others: libtorch's strides multiply those.
    is_empty |= length == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(length, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : bytes;
}

std::string shown_shape(std::span<const int64_t> shape) {
  const bool cut = shape.size() > kMaxDims;
  return concat(at::IntArrayRef(shape.data(), cut ? kMaxDims : shape.size()), cut ? "..." : "");
}

size_t num_corners(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes) {
  const auto has_dims = [&](const mesh::Box& box) { return box.size.size() == shape.size(); };
  if (!std::ranges::all_of(boxes, has_dims)) return 0;
  const size_t num_dims = split_dims(shape, boxes).size();
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  // A hostile shape may cut 64 dimensions, and a shift by 64 is undefined.
  const bool fits = num_dims < 64 && boxes.size() <= kMost >> num_dims;
  return fits ? boxes.size() << num_dims : kMost;
}

// The number of boxes that hold an element is the signed sum of the boxes' corners that lie at or
// before it in every dimension. The boxes therefore cover the tensor exactly once if and only if
// their signed corners add up to the tensor's corners. Most cancel; what remains is an error. No
// other error lies before the first remaining point in row-major order. What remains there is by
// how much the count of boxes that hold its element is too high.
std::string cover_error(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes) {
  for (const mesh::Box& box : boxes) {
    if (!lies_inside(box, shape))
      return concat("a piece of size ", shown_shape(box.size), " at ", shown_shape(box.offset),
                    " reaches outside the shape ", shown_shape(shape));
    // Empty boxes have corners that cancel, so they would pass and still say nothing.
    if (std::ranges::count(box.size, 0) > 0)
      return concat("a piece at ", shown_shape(box.offset), " has no elements");
  }
  if (std::ranges::count(shape, 0) > 0) return "";  // only an empty piece would fit
  std::vector<size_t> dims = split_dims(shape, boxes);
  if (num_corners(shape, boxes) > kMaxCorners)
    return concat(boxes.size(), " pieces cut along ", dims.size(), " dimensions; at most ",
                  kMaxCorners, " corners of pieces are checked");
  const Grid grid(shape, std::move(dims));
  std::vector<Corner> corners;
  for (const mesh::Box& box : boxes) grid.add_corners(box, 0, corners);
  grid.add_corners({std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}}, 1,
                   corners);
  std::ranges::sort(corners);
  for (size_t i = 0; i < corners.size();) {
    const Corner index = corners[i] >> 1;
    int64_t surplus = 0;
    for (; i < corners.size() && corners[i] >> 1 == index; ++i)
      surplus += (corners[i] & 1) == 0 ? 1 : -1;
    if (surplus != 0)
      return concat("element ", shown_shape(grid.element_at(index)), " lies in ", 1 + surplus,
                    " pieces, expected 1");
  }
  return "";
}

TensorParts::TensorParts(std::vector<int64_t> shape, size_t bytes_per_element, uint64_t most_bytes)
    : shape_(std::move(shape)) {
  if (shape_.empty() || std::ranges::count(shape_, 0) > 0) return;
  // Split the first dimension where a part can hold several indices, otherwise the last.
  uint64_t row_bytes = bytes_per_element;
  dim_ = shape_.size() - 1;
  // Whole trailing dimensions as long as they fit: fewer, longer parts.
  while (dim_ > 0 && row_bytes * static_cast<uint64_t>(shape_[dim_]) <= most_bytes)
    row_bytes *= static_cast<uint64_t>(shape_[dim_--]);
  uint64_t rows = std::max<uint64_t>(most_bytes / row_bytes, 1);
  // Parts that end with chunks read each chunk once.
  // cut_into_chunks() cuts at multiples of this.
  const uint64_t rows_per_chunk = kChunkBytes / row_bytes;
  if (rows_per_chunk > 0 && rows > rows_per_chunk) rows -= rows % rows_per_chunk;
  most_rows_ = static_cast<int64_t>(std::min(rows, static_cast<uint64_t>(shape_[dim_])));
  parts_per_cut_ = (shape_[dim_] - 1) / most_rows_ + 1;
  num_parts_ = parts_per_cut_;
  for (size_t d = 0; d < dim_; ++d) num_parts_ *= shape_[d];
}

mesh::Box TensorParts::at(int64_t index) const {
  mesh::Box part{std::vector<int64_t>(shape_.size(), 0), shape_};
  if (num_parts_ == 1) return part;
  part.offset[dim_] = index % parts_per_cut_ * most_rows_;
  part.size[dim_] = std::min(most_rows_, shape_[dim_] - part.offset[dim_]);
  // The dimensions before the cut one are counted off like digits.
  index /= parts_per_cut_;
  for (size_t d = dim_; d-- > 0; index /= shape_[d]) {
    part.offset[d] = index % shape_[d];
    part.size[d] = 1;
  }
  return part;
}

}  // namespace trireme::checkpoint
