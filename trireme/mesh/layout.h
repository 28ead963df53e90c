// How one global tensor lies on a mesh: its shape, and per axis whether it is replicated, sharded
// or a partial sum. Every parameter carries one; gradient norm, optimizer state, checkpoint and
// comparison between layouts read it, and nothing ever guesses from a shard's shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/mesh/device_mesh.h"

namespace trireme::mesh {

// What one mesh axis does to a tensor.
struct Placement {
  enum class Kind { kReplicated, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  int dim = 0;  // the tensor dimension that kSharded splits
  // Where kSharded splits: coordinate c of the axis holds [cuts[c], cuts[c + 1]) of the dimension.
  // Empty: as evenly as it goes, see split_range().
  std::vector<int64_t> cuts{};

  static Placement replicated() { return {}; }
  static Placement sharded(int dim, std::vector<int64_t> cuts = {}) {
    return {Kind::kSharded, dim, std::move(cuts)};
  }
  static Placement partial() { return {Kind::kPartial}; }
  bool operator==(const Placement&) const = default;
};

// "replicated", "sharded(0)", "sharded(0 at 0,3,7)" with its cuts, "partial"; and back (throws
// ConfigError on anything else).
std::string to_string(const Placement& placement);
Placement parse_placement(const std::string& text);

// A block of a tensor: per dimension where it starts and how long it is. Sizes may be 0.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> size;

  int64_t numel() const;
  bool operator==(const Box&) const = default;
};
Box intersect(const Box& a, const Box& b);

// The `index`-th of `parts` pieces of [0, length): lengths differ by at most one, longer ones
// first, and are 0 when there are more parts than elements.
struct Range {
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Range&) const = default;
};
Range split_range(int64_t length, int parts, int index);

class Layout {
 public:
  // placements[i] belongs to axes[i]. Several axes may shard one dimension: the outer one splits
  // first. A dimension with cuts of its own is split by one axis alone.
  // Throws: ConfigError when a placement names a dimension the shape does not have, its cuts do not
  //         go from 0 up to the dimension's length in one step a coordinate, a length is negative
  //         or an axis has no rank
  Layout(std::vector<int64_t> shape, std::vector<Axis> axes, std::vector<Placement> placements);
  // Replicated on every axis.
  Layout(std::vector<int64_t> shape, std::vector<Axis> axes);

  // This layout, of a tensor that is itself the block of rank `outer_rank` of `outer`: a parameter
  // split over the tensor axis whose block ZeRO shares out. What the axes of both do to it need not
  // be a product: each block may be cut at places of its own.
  // Throws: ConfigError when the shape is not that block's
  Layout inside(const Layout& outer, int outer_rank) const;

  // Of the tensor that the axes split; inside another layout: of the block.
  const std::vector<int64_t>& shape() const { return shape_; }
  // Of the whole tensor.
  const std::vector<int64_t>& whole_shape() const {
    return outer_ ? outer_->whole_shape() : shape_;
  }
  // What it lies inside of; null: it is of the whole tensor.
  const Layout* outer() const { return outer_.get(); }
  int outer_rank() const { return outer_rank_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<Placement>& placements() const { return placements_; }
  int num_ranks() const;

  // What `rank` (row-major over the axes) holds of the tensor of shape().
  Box local_box(int rank) const;
  // The same of the whole tensor.
  Box whole_box(int rank) const;
  // The lowest rank that holds the same values, the one at 0 on every replicated axis: replicas of
  // a shard share an owner, and the owners' boxes cover the tensor once. Partial sums of one box
  // are different values and have owners of their own.
  int owner(int rank) const;
  bool operator==(const Layout& other) const;

 private:
  std::vector<int64_t> shape_;
  std::vector<Axis> axes_;
  std::vector<Placement> placements_;
  std::shared_ptr<const Layout> outer_;
  int outer_rank_ = 0;
};

}  // namespace trireme::mesh
