// How the axes of a mesh split one tensor. It is what mesh::Layout says, in a form small enough to
// be made for every operator.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "trireme/mesh/device_mesh.h"
#include "trireme/mesh/layout.h"

namespace trireme::spmd {

class MoveLog;
class StepFollower;

inline constexpr int kMostAxes = 4;

// The effect of one axis, as mesh::Placement.
struct Place {
  using Kind = mesh::Placement::Kind;
  Kind kind = Kind::kReplicated;
  int dim = 0;  // of kSharded
  // Of kSharded: coordinate c has [cuts[c], cuts[c + 1]). Null: as evenly as possible.
  std::shared_ptr<const std::vector<int64_t>> cuts{};
  // Of kSharded: not 0 when the axis splits each run of `period` positions alike, cuts included.
  // Where dimensions [B, T] became one, a split of T has period T.
  int64_t period = 0;

  static Place replicated() { return {}; }
  static Place sharded(int dim) { return {Kind::kSharded, dim}; }
  static Place partial() { return {Kind::kPartial}; }
  bool is_replicated() const { return kind == Kind::kReplicated; }
  bool is_sharded() const { return kind == Kind::kSharded; }
  bool is_sharded(int on) const { return is_sharded() && dim == on; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool operator==(const Place& other) const;
};

// places[i] belongs to axis i of a grid; those beyond its axes are replicated. Several axes may
// shard one dimension, the outer one first, if none of them has cuts.
using Places = std::array<Place, kMostAxes>;

// Where a grid's random numbers come from. Each random operator on its tensors takes one stream,
// and an element its numbers by its place in the whole tensor, so no layout changes them. Every
// rank must have the same state.
struct RandomState {
  uint64_t seed = 0;
  uint64_t stream = 0;  // of the next operator
};

// The axes of a mesh that have more than one rank.
class Grid {
 public:
  // `mesh` must outlive the grid and all tensors on it.
  // Collective: every rank of the mesh's world
  // Throws:     ConfigError for more than kMostAxes such axes
  explicit Grid(const mesh::DeviceMesh& mesh);

  const mesh::DeviceMesh& mesh() const { return mesh_; }
  int num_axes() const { return static_cast<int>(axes_.size()); }
  const std::vector<mesh::Axis>& axes() const { return axes_; }
  int size(int axis) const { return axes_[axis].size; }
  int coordinate(int axis) const { return coordinates_[axis]; }
  comm::Communicator& group(int axis) const { return *groups_[axis]; }
  // Its seed is that of torch's default generator when the grid is made, see torch::manual_seed().
  // To repeat an operator's numbers, put back the state from before it. One thread at a time.
  RandomState& random() const { return random_; }
  // -1 for an axis of one rank.
  // Throws: ConfigError for a name that is no axis
  int find(std::string_view axis) const;
  // Of the redistributions of tensors on this grid; null: none is kept.
  MoveLog* log() const { return log_.get(); }
  void set_log(std::shared_ptr<MoveLog> log) { log_ = std::move(log); }
  // Tells operators where a plan wants their arguments; null: they choose by themselves.
  StepFollower* follower() const { return follower_.get(); }
  void set_follower(std::shared_ptr<StepFollower> follower) { follower_ = std::move(follower); }

 private:
  std::shared_ptr<MoveLog> log_;
  std::shared_ptr<StepFollower> follower_;
  const mesh::DeviceMesh& mesh_;
  std::vector<mesh::Axis> axes_;
  std::vector<int> coordinates_;
  std::vector<comm::Communicator*> groups_;
  mutable RandomState random_;
};
using GridPtr = std::shared_ptr<const Grid>;

// The part of [0, length) that `coordinate` of an axis of `size` ranks has.
mesh::Range part_of(const Place& place, int64_t length, int size, int coordinate);
// The part of dimension `dim` of length `length` that this rank has. No axis may split it
// periodically.
mesh::Range local_range(const Grid& grid, const Places& places, int dim, int64_t length);
int64_t local_size(const Grid& grid, const Places& places, int dim, int64_t length);
// The positions in the whole dimension of what this rank has of it.
std::vector<int64_t> local_positions(const Grid& grid, const Places& places, int dim,
                                     int64_t length);
std::vector<int64_t> local_sizes(const Grid& grid, const Places& places, c10::IntArrayRef sizes);
// The number of axes that shard `dim`.
int num_splits(const Places& places, int dim);

// Throws: ConfigError where an axis splits a dimension periodically, which no layout says
mesh::Layout layout_of(const Grid& grid, const Places& places, c10::IntArrayRef sizes);
Places places_of(const Grid& grid, const mesh::Layout& layout);
// "[data: sharded(0), tensor: partial]"; "[]" on a grid without axes
std::string to_string(const Grid& grid, const Places& places);

}  // namespace trireme::spmd
