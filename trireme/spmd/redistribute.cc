#include "trireme/spmd/redistribute.h"

#include <algorithm>
#include <chrono>

#include <ATen/Functions.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/spmd/move_log.h"

namespace trireme::spmd {
namespace {

using comm::Communicator;
using Tensors = std::vector<at::Tensor>;

// Contiguous views or copies of the parts that an axis splits `local` into.
Tensors parts_of(const at::Tensor& local, const Place& place, const Communicator& group) {
  Tensors parts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const mesh::Range part = part_of(place, local.size(place.dim), group.size(), rank);
    parts.push_back(local.narrow(place.dim, part.offset, part.size).contiguous());
  }
  return parts;
}

// Empty tensors for what the ranks of an axis have of a tensor whose dimension has `length`.
Tensors blocks_for(const at::Tensor& local, const Place& place, int64_t length, int size) {
  Tensors blocks;
  std::vector<int64_t> sizes = local.sizes().vec();
  for (int rank = 0; rank < size; ++rank) {
    sizes[place.dim] = part_of(place, length, size, rank).size;
    blocks.push_back(at::empty(sizes, local.options()));
  }
  return blocks;
}

at::Tensor gather(const at::Tensor& local, const Place& place, int64_t length,
                  Communicator& group) {
  Tensors blocks = blocks_for(local, place, length, group.size());
  group.all_gather(blocks, local.contiguous())->wait();
  return at::cat(blocks, place.dim);
}

at::Tensor sum(const at::Tensor& local, Communicator& group) {
  at::Tensor total = local.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(total)->wait();
  return total;
}

at::Tensor scatter_sum(const at::Tensor& local, const Place& to, Communicator& group) {
  const Tensors parts = parts_of(local, to, group);
  at::Tensor mine = at::empty_like(parts[group.rank()], at::MemoryFormat::Contiguous);
  group.reduce_scatter(mine, parts)->wait();
  return mine;
}

at::Tensor exchange(const at::Tensor& local, const Place& from, int64_t length, const Place& to,
                    Communicator& group) {
  const Tensors parts = parts_of(local, to, group);
  Tensors blocks = blocks_for(parts[group.rank()], from, length, group.size());
  group.all_to_all(blocks, parts)->wait();
  return at::cat(blocks, from.dim);
}

// The block in zeros: the ranks' sum is the whole.
at::Tensor pad(const at::Tensor& local, const Place& from, int64_t length, int size,
               int coordinate) {
  std::vector<int64_t> sizes = local.sizes().vec();
  sizes[from.dim] = length;
  at::Tensor whole = at::zeros(sizes, local.options());
  const mesh::Range part = part_of(from, length, size, coordinate);
  whole.narrow(from.dim, part.offset, part.size).copy_(local);
  return whole;
}

bool is_periodic(const Place& place) { return place.is_sharded() && place.period != 0; }

// Runs `move` on the dimension of a periodic place as the two that it stands for: `count` periods,
// and what `local` has of each.
template <typename Move>
at::Tensor by_periods(const at::Tensor& local, const Place& place, int64_t count,
                      const Move& move) {
  std::vector<int64_t> sizes = local.sizes().vec();
  const int64_t own = count == 0 ? 0 : sizes[place.dim] / count;
  sizes[place.dim] = own;
  sizes.insert(sizes.begin() + place.dim, count);
  Place inner = place;
  inner.period = 0;
  ++inner.dim;
  return move(local.reshape(sizes), inner).flatten(place.dim, place.dim + 1);
}

// One axis, while no other splits the dimensions of both places.
class AxisMove {
 public:
  AxisMove(const Grid& grid, int axis)
      : group_(grid.group(axis)), size_(grid.size(axis)), coordinate_(grid.coordinate(axis)) {}

  // from_length: of from's dimension, before this axis splits it
  at::Tensor operator()(const at::Tensor& local, const Place& from, int64_t from_length,
                        const Place& to) const {
    if (from == to) return local;
    if (is_periodic(from)) {
      const at::Tensor whole = by_periods(local, from, from_length / from.period,
                                          [&](const at::Tensor& periods, const Place& inner) {
                                            return gather(periods, inner, from.period, group_);
                                          });
      return (*this)(whole, Place(), 0, to);
    }
    if (is_periodic(to)) {
      const at::Tensor whole = from.is_sharded() ? gather(local, from, from_length, group_) : local;
      const Place rest = from.is_sharded() ? Place() : from;
      return by_periods(whole, to, whole.size(to.dim) / to.period,
                        [&](const at::Tensor& periods, const Place& inner) {
                          return (*this)(periods, rest, 0, inner);
                        });
    }
    if (from.is_partial()) {
      return to.is_sharded() ? scatter_sum(local, to, group_) : sum(local, group_);
    }
    if (from.is_sharded()) {
      if (to.is_partial()) return pad(local, from, from_length, size_, coordinate_);
      if (to.is_replicated()) return gather(local, from, from_length, group_);
      if (to.dim != from.dim) return exchange(local, from, from_length, to, group_);
      return slice(gather(local, from, from_length, group_), to);
    }
    if (to.is_sharded()) return slice(local, to);
    return coordinate_ == 0 ? local : at::zeros_like(local);
  }

 private:
  at::Tensor slice(const at::Tensor& whole, const Place& to) const {
    const mesh::Range part = part_of(to, whole.size(to.dim), size_, coordinate_);
    return whole.narrow(to.dim, part.offset, part.size);
  }

  Communicator& group_;
  int size_;
  int coordinate_;
};

// Whether an axis outside of `axis` splits the same dimension and changes, so that this one's
// blocks would not be blocks any more.
bool is_under_change(const Places& from, const Places& to, int axis) {
  if (!from[axis].is_sharded()) return false;
  for (int outer = 0; outer < axis; ++outer) {
    if (from[outer] == to[outer]) continue;
    if (from[outer].is_sharded(from[axis].dim) || to[outer].is_sharded(from[axis].dim)) return true;
  }
  return false;
}

// Whether an axis that splits `dim` in either changes.
bool has_change(const Places& from, const Places& to, int dim) {
  for (int axis = 0; axis < kMostAxes; ++axis) {
    if (from[axis] == to[axis]) continue;
    if (from[axis].is_sharded(dim) || to[axis].is_sharded(dim)) return true;
  }
  return false;
}

// Whether `axis` can go from one place to the other at once: nothing else splits their dimensions.
bool is_direct(const Places& from, const Places& to, int axis) {
  for (const Place& end : {from[axis], to[axis]}) {
    if (!end.is_sharded()) continue;
    for (int other = 0; other < kMostAxes; ++other) {
      if (other == axis) continue;
      if (from[other].is_sharded(end.dim) || to[other].is_sharded(end.dim)) return false;
    }
  }
  return true;
}

// Of a block when the axis of `place` would not split it.
double unsplit_bytes(const at::Tensor& local, const Place& place, int64_t length) {
  double bytes = static_cast<double>(local.element_size());
  for (int64_t dim = 0; dim < local.dim(); ++dim) {
    bytes *=
        static_cast<double>(place.is_sharded(static_cast<int>(dim)) ? length : local.size(dim));
  }
  return bytes;
}

}  // namespace

at::Tensor redistribute(const Grid& grid, const at::Tensor& local, c10::IntArrayRef sizes,
                        const Places& from, const Places& to) {
  if (from == to) return local;
  at::Tensor block = local;
  Places now = from;
  MoveLog* const log = grid.log();
  const auto start =
      log ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  double bytes = 0;
  const auto length_before = [&](int axis) {  // of the dimension that `axis` splits
    if (!now[axis].is_sharded()) return int64_t{0};
    Places others = now;
    others[axis] = {};
    // Periods are split after all else.
    for (int inner = axis; inner < kMostAxes && !is_periodic(now[axis]); ++inner)
      others[inner] = {};
    return local_size(grid, others, now[axis].dim, sizes[now[axis].dim]);
  };
  const auto move = [&](int axis, const Place& next) {
    if (log) {
      const double unsplit = unsplit_bytes(block, now[axis], length_before(axis));
      bytes += bytes_moved(now[axis], next, grid.size(axis), unsplit);
    }
    block = AxisMove(grid, axis)(block, now[axis], length_before(axis), next);
    now[axis] = next;
  };
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (is_periodic(now[axis]) && has_change(now, to, now[axis].dim)) move(axis, {});
  }
  for (int axis = grid.num_axes() - 1; axis >= 0; --axis) {
    if (now[axis] != to[axis] && is_direct(now, to, axis)) {
      move(axis, to[axis]);
    } else if ((now[axis] != to[axis] || is_under_change(now, to, axis)) &&
               !now[axis].is_replicated()) {
      move(axis, Place::replicated());
    }
  }
  for (const bool periods : {false, true}) {
    for (int axis = 0; axis < grid.num_axes(); ++axis) {
      if (now[axis] != to[axis] && is_periodic(to[axis]) == periods) move(axis, to[axis]);
    }
  }
  if (log) log->add(grid, from, to, bytes, seconds_since(start));
  return block;
}

double bytes_moved(const Place& from, const Place& to, int size, double bytes) {
  if (from == to) return 0;
  const double share = (size - 1.0) / size;
  if (from.is_partial()) return to.is_sharded() ? share * bytes : 2 * share * bytes;
  if (from.is_sharded() && !to.is_partial()) {
    return to.is_sharded() && to.dim != from.dim ? share * bytes / size : share * bytes;
  }
  return 0;
}

}  // namespace trireme::spmd
