#include "trireme/spmd/splits.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/Functions.h>

#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

std::shared_ptr<const std::vector<int64_t>> checked_cuts(const std::vector<int64_t>& cuts,
                                                         int64_t length, int ranks, int dim,
                                                         std::string_view what) {
  const bool fits = std::ssize(cuts) == ranks + 1 && cuts.front() == 0 && cuts.back() == length &&
                    std::ranges::is_sorted(cuts);
  TRIREME_CHECK(fits, what, " is cut at ", c10::IntArrayRef(cuts), " in dimension ", dim,
                "; expected ", ranks + 1, " numbers that rise from 0 to its length, ", length);
  for (int c = 0; c < ranks; ++c) {
    const mesh::Range even = mesh::split_range(length, ranks, c);
    if (cuts[c] != even.offset) return std::make_shared<const std::vector<int64_t>>(cuts);
  }
  return nullptr;
}

// Of the tensor, counted from its first.
int checked_dim(int dim, int64_t dims, const std::string& axis, std::string_view what) {
  TRIREME_CHECK(dim >= -dims && dim < dims, what, " is split in dimension ", dim, " on \"", axis,
                "\", but it has ", dims, " dimensions; expected one from ", -dims, " to ",
                dims - 1);
  return dim < 0 ? dim + static_cast<int>(dims) : dim;
}

// An axis for each use of one.
class NamedOnce {
 public:
  explicit NamedOnce(std::string_view what) : what_(what) {}
  void add(const std::string& axis) {
    TRIREME_CHECK(named_.insert(axis).second, what_, " is placed twice on the axis \"", axis,
                  "\"; name each axis once");
  }

 private:
  std::string_view what_;
  std::set<std::string> named_{};
};

}  // namespace

Splits Splits::split(int dim, std::string axis, std::vector<int64_t> cuts) const {
  Splits more = *this;
  more.axes_.push_back({.name = std::move(axis), .dim = dim, .cuts = std::move(cuts)});
  return more;
}

Splits Splits::partial(std::string axis) const {
  Splits more = *this;
  more.axes_.push_back({.name = std::move(axis), .is_partial = true});
  return more;
}

bool Splits::names(std::string_view axis) const {
  return std::ranges::any_of(axes_, [&](const Axis& each) { return each.name == axis; });
}

bool Splits::splits_evenly(int dim, std::string_view axis) const {
  return std::ranges::any_of(axes_, [&](const Axis& each) {
    return each.name == axis && !each.is_partial && each.dim == dim && each.cuts.empty();
  });
}

Places Splits::evenly_on(const Grid& grid, int64_t dims, std::string_view what) const {
  Places places;
  NamedOnce named(what);
  for (const Axis& each : axes_) {
    named.add(each.name);
    const int axis = grid.find(each.name);
    const int dim = each.is_partial ? 0 : checked_dim(each.dim, dims, each.name, what);
    if (axis < 0) continue;
    places[axis] = each.is_partial ? Place::partial() : Place::sharded(dim);
  }
  return places;
}

Places Splits::on(const Grid& grid, c10::IntArrayRef sizes, std::string_view what) const {
  Places places = evenly_on(grid, std::ssize(sizes), what);
  for (const Axis& each : axes_) {
    const int axis = grid.find(each.name);
    if (axis < 0 || each.cuts.empty()) continue;
    const int dim = places[axis].dim;
    places[axis].cuts = checked_cuts(each.cuts, sizes[dim], grid.size(axis), dim, what);
    TRIREME_CHECK(!places[axis].cuts || num_splits(places, dim) == 1, what,
                  " has cuts in dimension ", dim, ", which several axes split; leave out the cuts");
  }
  return places;
}

mesh::Layout Splits::layout(c10::IntArrayRef sizes, const std::vector<mesh::Axis>& axes,
                            std::string_view what) const {
  std::vector<mesh::Placement> placements(axes.size());
  NamedOnce named(what);
  for (const Axis& each : axes_) {
    named.add(each.name);
    mesh::kind_of(each.name);  // refuses names that are no axis
    const int dim = each.is_partial ? 0 : checked_dim(each.dim, std::ssize(sizes), each.name, what);
    const auto axis = std::ranges::find(axes, each.name, &mesh::Axis::name);
    if (axis == axes.end() || axis->size == 1) continue;
    mesh::Placement& placement = placements[axis - axes.begin()];
    placement = each.is_partial ? mesh::Placement::partial() : mesh::Placement::sharded(dim);
    if (each.cuts.empty()) continue;
    const auto cuts = checked_cuts(each.cuts, sizes[dim], axis->size, dim, what);
    if (cuts) placement.cuts = *cuts;
  }
  for (const mesh::Placement& placement : placements) {
    const auto shares_dim = [&](const mesh::Placement& other) {
      return other.kind == mesh::Placement::Kind::kSharded && other.dim == placement.dim;
    };
    TRIREME_CHECK(placement.cuts.empty() || std::ranges::count_if(placements, shares_dim) == 1,
                  what, " has cuts in dimension ", placement.dim,
                  ", which several axes split; leave out the cuts");
  }
  return {sizes.vec(), axes, std::move(placements)};
}

namespace {

// What a rank says of a block: dimensions (-1: it has none), dtype, sizes.
constexpr int64_t kMostDims = 8, kRecord = kMostDims + 2;

at::Tensor record_of(c10::ArrayRef<at::Tensor> blocks, size_t count) {
  std::vector<int64_t> values(count * kRecord);
  for (size_t i = 0; i < count; ++i) {
    int64_t* record = values.data() + i * kRecord;
    const bool fits = i < blocks.size() && blocks[i].defined() && blocks[i].dim() <= kMostDims;
    record[0] = fits ? blocks[i].dim() : -1;
    if (!fits) continue;
    record[1] = static_cast<int64_t>(blocks[i].scalar_type());
    std::ranges::copy(blocks[i].sizes(), record + 2);
  }
  return at::tensor(values, at::kLong).view({static_cast<int64_t>(count), kRecord});
}

// The records of all ranks of the grid, the last axis' fastest.
at::Tensor records_of_all(const Grid& grid, const at::Tensor& own) {
  at::Tensor all = own.unsqueeze(0);
  for (int axis = grid.num_axes() - 1; axis >= 0; --axis) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < grid.size(axis); ++rank) parts.push_back(at::empty_like(all));
    grid.group(axis).all_gather(parts, all)->wait();
    all = at::cat(parts);
  }
  return all;
}

// One block of all ranks. Thrown errors are the same on each.
class Tiles {
 public:
  Tiles(const Grid& grid, const at::Tensor& records, const std::string& name)
      : grid_(grid), records_(records), name_(name) {
    for (const mesh::Axis& axis : grid.axes()) axes_.push_back(axis);
    for (int64_t rank = 0; rank < records.size(0); ++rank) {
      TRIREME_CHECK(at(rank, 0) >= 0, name, " has failed on rank ", rank,
                    " of the grid, or has more than ", kMostDims, " dimensions there");
      TRIREME_CHECK(at(rank, 0) == at(0, 0) && at(rank, 1) == at(0, 1), name, " has ", at(0, 0),
                    " dimensions on rank 0 of the grid and ", at(rank, 0), " on rank ", rank,
                    ", or another dtype; expected the same");
    }
  }

  int64_t dims() const { return at(0, 0); }

  TiledTensor join(Places places) const {
    TiledTensor result{{}, std::move(places)};
    for (int dim = 0; dim < static_cast<int>(dims()); ++dim)
      result.sizes.push_back(length(dim, result.places));
    return result;
  }

 private:
  int64_t at(int64_t rank, int64_t field) const {
    return records_.accessor<int64_t, 2>()[rank][field];
  }

  // Of the whole; sets cuts where blocks are not even.
  int64_t length(int dim, Places& places) const {
    std::vector<int64_t> first;  // of ranks that are first on all other axes
    int last_axis = -1;
    for (int64_t rank = 0; rank < records_.size(0); ++rank) {
      std::vector<int> where = mesh::coordinates_of(axes_, static_cast<int>(rank));
      bool is_first = true;
      for (int axis = 0; axis < grid_.num_axes(); ++axis) {
        if (places[axis].is_sharded(dim)) {
          last_axis = axis;
          continue;
        }
        is_first &= where[axis] == 0;
        where[axis] = 0;
      }
      const int64_t own = at(rank, 2 + dim);
      const int64_t expected = at(mesh::rank_of(axes_, where), 2 + dim);
      TRIREME_CHECK(own == expected, name_, " does not tile: its dimension ", dim, " has ", own,
                    " elements on rank ", rank, " of the grid, and ", expected,
                    " on one that holds the same part");
      if (is_first) first.push_back(own);
    }
    int64_t whole = 0;
    std::vector<int64_t> cuts = {0};
    for (const int64_t part : first) cuts.push_back(whole += part);
    if (num_splits(places, dim) == 1) {
      places[last_axis].cuts = checked_cuts(cuts, whole, grid_.size(last_axis), dim, name_);
    } else {
      check_even(dim, places, whole, first);
    }
    return whole;
  }

  // Several axes split evenly only.
  void check_even(int dim, const Places& places, int64_t whole,
                  const std::vector<int64_t>& parts) const {
    std::vector<int64_t> even = {whole};
    for (int axis = 0; axis < grid_.num_axes(); ++axis) {
      if (!places[axis].is_sharded(dim)) continue;
      std::vector<int64_t> next;
      for (const int64_t length : even) {
        for (int c = 0; c < grid_.size(axis); ++c)
          next.push_back(mesh::split_range(length, grid_.size(axis), c).size);
      }
      even = std::move(next);
    }
    TRIREME_CHECK(even == parts, name_, " does not tile: several axes split its dimension ", dim,
                  " into ", c10::IntArrayRef(parts), " elements; expected ",
                  c10::IntArrayRef(even));
  }

  const Grid& grid_;
  const at::Tensor records_;
  const std::string& name_;
  std::vector<mesh::Axis> axes_{};
};

}  // namespace

std::vector<TiledTensor> tile(const Grid& grid, c10::ArrayRef<at::Tensor> blocks,
                              c10::ArrayRef<Splits> splits, c10::ArrayRef<std::string> names) {
  const at::Tensor records = records_of_all(grid, record_of(blocks, splits.size()));
  std::vector<TiledTensor> result;
  for (size_t i = 0; i < splits.size(); ++i) {
    const Tiles tiles(grid, records.select(1, static_cast<int64_t>(i)), names[i]);
    result.push_back(tiles.join(splits[i].evenly_on(grid, tiles.dims(), names[i])));
  }
  return result;
}

}  // namespace trireme::spmd
