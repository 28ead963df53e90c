#include "trireme/spmd/place.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::spmd {

bool Place::operator==(const Place& other) const {
  if (kind != other.kind) return false;
  if (kind != Kind::kSharded) return true;
  if (dim != other.dim) return false;
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
    const mesh::Range part =
        part_of(places[axis], range.size, grid.size(axis), grid.coordinate(axis));
    range = {range.offset + part.offset, part.size};
  }
  return range;
}

std::vector<int64_t> local_sizes(const Grid& grid, const Places& places, c10::IntArrayRef sizes) {
  std::vector<int64_t> local(sizes.begin(), sizes.end());
  for (size_t dim = 0; dim < local.size(); ++dim) {
    local[dim] = local_range(grid, places, static_cast<int>(dim), sizes[dim]).size;
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
  }
  return text + "]";
}

}  // namespace trireme::spmd
