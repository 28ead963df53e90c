// The world's ranks arranged along named axes. A mesh is passed as `const DeviceMesh&`; there is no
// global one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/axis_kinds.h"

namespace trireme::mesh {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// The coordinates of `rank` on `axes` (row-major: the last axis varies fastest), and the reverse.
std::vector<int> coordinates_of(std::span<const Axis> axes, int rank);
int rank_of(std::span<const Axis> axes, std::span<const int> coordinates);
// The position of `rank` among the ranks that differ from it only on `names`, and their number.
// Names that are none of `axes` change nothing.
struct Position {
  int index = 0;
  int count = 1;
};
Position position_on(std::span<const Axis> axes, int rank, std::span<const std::string_view> names);

class DeviceMesh {
 public:
  // Makes one group per axis. `world` must outlive the mesh.
  // Collective: every rank of `world`, with the same axes
  // Throws:     ConfigError when a name is unknown, repeated or out of order, or the product of the
  //             sizes is not the number of ranks
  DeviceMesh(comm::Communicator& world, std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  comm::Communicator& world() const { return world_; }
  // 1 for an axis the mesh does not have.
  int size(std::string_view axis) const;
  // This rank's position on `axis`; 0 for an axis the mesh does not have.
  int coordinate(std::string_view axis) const;
  const std::vector<int>& coordinates() const { return coordinates_; }
  // This rank's position, see position_on().
  Position position(std::span<const std::string_view> axes) const {
    return position_on(axes_, world_.rank(), axes);
  }

  // The ranks that differ from this one only on `axis`. Every known axis has a group, possibly of
  // one rank.
  comm::Communicator& group(std::string_view axis) const;
  // The ranks that differ on any of `axes`, in world order. The gradient group is {"data", "shard",
  // "context"}. Made on first use, then kept.
  // Collective: every rank of the world, on first use
  // Throws:     ConfigError on an unknown axis
  comm::Communicator& joined_group(std::span<const std::string_view> axes) const;

 private:
  comm::Communicator& world_;
  std::vector<Axis> axes_;
  std::vector<int> coordinates_;
  // Keyed by the axes' names joined with '.'.
  mutable std::map<std::string, std::unique_ptr<comm::Communicator>, std::less<>> groups_;
};

}  // namespace trireme::mesh
