#include "trireme/mesh/device_mesh.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::mesh {
namespace {

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const AxisKind& kind : kAxisKinds) names.emplace_back(kind.name);
  return names;
}

// Position in kAxisKinds; throws on an unknown name.
size_t axis_order(std::string_view name) {
  const auto* found = std::ranges::find(kAxisKinds, name, &AxisKind::name);
  TRIREME_CHECK(found != std::end(kAxisKinds), "mesh axis \"", name, "\" is unknown; expected ",
                in_words(all_names()));
  return static_cast<size_t>(found - std::begin(kAxisKinds));
}

void check_axes(std::span<const Axis> axes, int num_ranks) {
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    TRIREME_CHECK(axes[i].size >= 1, "mesh axis \"", axes[i].name, "\" has size ", axes[i].size,
                  "; expected at least 1");
    TRIREME_CHECK(i == 0 || axis_order(axes[i - 1].name) < axis_order(axes[i].name), "mesh axis \"",
                  axes[i].name, "\" is repeated or out of order; expected the order ",
                  joined(all_names()));
    axis_order(axes[i].name);
    product = std::min(product * axes[i].size, int64_t{1} << 31);  // cannot overflow
  }
  TRIREME_CHECK(product == num_ranks, "the product of the mesh axes is ", product,
                " but there are ", num_ranks, " ranks; make them equal");
}

}  // namespace

std::vector<int> coordinates_of(std::span<const Axis> axes, int rank) {
  std::vector<int> coordinates(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return coordinates;
}

int rank_of(std::span<const Axis> axes, std::span<const int> coordinates) {
  int rank = 0;
  for (size_t i = 0; i < axes.size(); ++i) rank = rank * axes[i].size + coordinates[i];
  return rank;
}

const AxisKind& kind_of(std::string_view axis) { return kAxisKinds[axis_order(axis)]; }

Position position_on(std::span<const Axis> axes, int rank,
                     std::span<const std::string_view> names) {
  const std::vector<int> coordinates = coordinates_of(axes, rank);
  Position position;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (std::ranges::find(names, axes[i].name) == names.end()) continue;
    position.index = position.index * axes[i].size + coordinates[i];
    position.count *= axes[i].size;
  }
  return position;
}

DeviceMesh::DeviceMesh(comm::Communicator& world, std::vector<Axis> axes)
    : world_(world), axes_(std::move(axes)) {
  check_axes(axes_, world_.size());
  coordinates_ = coordinates_of(axes_, world_.rank());
  for (const AxisKind& kind : kAxisKinds) joined_group({&kind.name, 1});
}

int DeviceMesh::size(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 1 : found->size;
}

int DeviceMesh::coordinate(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 0 : coordinates_[found - axes_.begin()];
}

comm::Communicator& DeviceMesh::group(std::string_view axis) const {
  return joined_group({&axis, 1});
}

comm::Communicator& DeviceMesh::joined_group(std::span<const std::string_view> axes) const {
  std::string name;
  for (std::string_view axis : axes) {
    axis_order(axis);  // a misspelt axis would silently give a group of one rank
    if (!name.empty()) name += '.';
    name += axis;
  }
  if (const auto found = groups_.find(name); found != groups_.end()) return *found->second;

  // Ranks with the same other coordinates share a color.
  std::vector<int> others = coordinates_;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (std::ranges::find(axes, axes_[i].name) != axes.end()) others[i] = 0;
  }
  auto group = world_.split(rank_of(axes_, others), world_.rank(), name);
  return *groups_.emplace(name, std::move(group)).first->second;
}

}  // namespace trireme::mesh
