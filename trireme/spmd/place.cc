#include "trireme/spmd/place.h"

#include <algorithm>
#include <numeric>

#include <ATen/CPUGeneratorImpl.h>

#include "trireme/base/error.h"

namespace trireme::spmd {

bool Place::operator==(const Place& other) const {
  if (kind != other.kind) return false;
  if (kind != Kind::kSharded) return true;
  if (dim != other.dim || period != other.period) return false;
  if (cuts == other.cuts) return true;
  return cuts && other.cuts && *cuts == *other.cuts;
}

Grid::Grid(const mesh::DeviceMesh& mesh) : mesh_(mesh) {
  for (const mesh::Axis& axis : mesh.axes()) {
    if (axis.size == 1) continue;
    axes_.push_back(axis);
    coordinates_.push_back(mesh.coordinate(axis.name));
    groups_.push_back(&mesh.group(axis.name));
  }
  TRIREME_CHECK(std::ssize(axes_) <= kMostAxes, "annotated tensors lie on ", axes_.size(),
                " axes of more than one rank; expected at most ", kMostAxes);
  random_.seed = at::detail::getDefaultCPUGenerator().current_seed();
}

int Grid::find(std::string_view name) const {
  for (int axis = 0; axis < num_axes(); ++axis) {
    if (axes_[axis].name == name) return axis;
  }
  mesh_.group(name);  // refuses names that are no axis
  return -1;
}

mesh::Range part_of(const Place& place, int64_t length, int size, int coordinate) {
  if (!place.is_sharded()) return {0, length};
  if (!place.cuts) return mesh::split_range(length, size, coordinate);
  const auto& cuts = *place.cuts;
  return {cuts[coordinate], cuts[coordinate + 1] - cuts[coordinate]};
}

mesh::Range local_range(const Grid& grid, const Places& places, int dim, int64_t length) {
  mesh::Range range{0, length};
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (!places[axis].is_sharded(dim)) continue;
    TRIREME_ASSERT(places[axis].period == 0, "dimension ", dim, " of ", to_string(grid, places));
    const mesh::Range part =
        part_of(places[axis], range.size, grid.size(axis), grid.coordinate(axis));
    range = {range.offset + part.offset, part.size};
  }
  return range;
}

namespace {

// Calls use(axis) for the axes that split `dim`, those that do so periodically last: they split
// whole periods of what the others leave.
template <typename Use>
void for_each_split(const Grid& grid, const Places& places, int dim, const Use& use) {
  for (const bool is_periodic : {false, true}) {
    for (int axis = 0; axis < grid.num_axes(); ++axis) {
      const bool splits = places[axis].is_sharded(dim);
      if (splits && (places[axis].period != 0) == is_periodic) use(axis);
    }
  }
}

}  // namespace

int64_t local_size(const Grid& grid, const Places& places, int dim, int64_t length) {
  int64_t size = length;
  for_each_split(grid, places, dim, [&](int axis) {
    const Place& place = places[axis];
    const int64_t run = place.period != 0 ? place.period : size;
    const int64_t part = part_of(place, run, grid.size(axis), grid.coordinate(axis)).size;
    size = place.period != 0 ? size / run * part : part;
  });
  return size;
}

std::vector<int64_t> local_positions(const Grid& grid, const Places& places, int dim,
                                     int64_t length) {
  std::vector<int64_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  for_each_split(grid, places, dim, [&](int axis) {
    const Place& place = places[axis];
    const int64_t run = place.period != 0 ? place.period : std::ssize(positions);
    const mesh::Range part = part_of(place, run, grid.size(axis), grid.coordinate(axis));
    int64_t index = 0;
    std::erase_if(positions, [&](int64_t) {
      const int64_t at = index++ % run;
      return at < part.offset || at >= part.offset + part.size;
    });
  });
  return positions;
}

std::vector<int64_t> local_sizes(const Grid& grid, const Places& places, c10::IntArrayRef sizes) {
  std::vector<int64_t> local(sizes.begin(), sizes.end());
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (!places[axis].is_sharded()) continue;
    const int dim = places[axis].dim;
    local[dim] = local_size(grid, places, dim, sizes[dim]);
  }
  return local;
}

int num_splits(const Places& places, int dim) {
  return static_cast<int>(
      std::ranges::count_if(places, [&](const Place& place) { return place.is_sharded(dim); }));
}

mesh::Layout layout_of(const Grid& grid, const Places& places, c10::IntArrayRef sizes) {
  std::vector<mesh::Placement> placements;
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    const Place& place = places[axis];
    TRIREME_CHECK(!place.is_sharded() || place.period == 0, "a tensor placed ",
                  to_string(grid, places), " has no layout; view it with the dimensions of before");
    placements.push_back({place.kind, place.is_sharded() ? place.dim : 0,
                          place.is_sharded() && place.cuts ? *place.cuts : std::vector<int64_t>()});
  }
  return {sizes.vec(), grid.axes(), placements};
}

Places places_of(const Grid& grid, const mesh::Layout& layout) {
  Places places;
  for (size_t i = 0; i < layout.axes().size(); ++i) {
    const int axis = grid.find(layout.axes()[i].name);
    if (axis < 0) continue;
    const mesh::Placement& from = layout.placements()[i];
    places[axis] = {from.kind, from.dim};
    if (from.cuts.empty()) continue;
    places[axis].cuts = std::make_shared<const std::vector<int64_t>>(from.cuts);
  }
  return places;
}

std::string to_string(const Grid& grid, const Places& places) {
  std::string text = "[";
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    const mesh::Placement shown{places[axis].kind, places[axis].dim};
    text += concat(axis > 0 ? ", " : "", grid.axes()[axis].name, ": ", mesh::to_string(shown));
    const bool is_periodic = places[axis].is_sharded() && places[axis].period != 0;
    if (is_periodic) text += concat(" in each ", places[axis].period);
  }
  return text + "]";
}

}  // namespace trireme::spmd
