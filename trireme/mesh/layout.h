// The distribution of one global tensor over a mesh: its shape, and for each axis whether it is
// replicated, sharded or a partial sum. Every parameter has a layout. Gradient norm, optimizer
// state, checkpoint and comparison between layouts read it, so nothing ever guesses from a shard's
// shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/mesh/device_mesh.h"

namespace trireme::mesh {

// The effect of one mesh axis on a tensor.
struct Placement {
  enum class Kind { kReplicated, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  int dim = 0;  // the tensor dimension that kSharded splits
  // Where kSharded splits: coordinate c of the axis holds [cuts[c], cuts[c + 1]) of the dimension.
  // Empty: as evenly as possible, see split_range().
  std::vector<int64_t> cuts{};

  static Placement replicated() { return {}; }
  static Placement sharded(int dim, std::vector<int64_t> cuts = {}) {
    return {Kind::kSharded, dim, std::move(cuts)};
  }
  static Placement partial() { return {Kind::kPartial}; }
  bool operator==(const Placement&) const = default;
};

// "replicated", "sharded(0)", "sharded(0 at 0,3,7)" with its cuts, "partial"; and the reverse.
// Throws: ConfigError on any other text
std::string to_string(const Placement& placement);
Placement parse_placement(const std::string& text);

// A block of a tensor: its start and length in each dimension. Sizes may be 0.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> size;

  int64_t numel() const;
  bool operator==(const Box&) const = default;
};
Box intersect(const Box& a, const Box& b);

// Piece number `index` when [0, length) is split into `parts`. Lengths differ by at most one;
// longer pieces come first. With more parts than elements some are empty.
struct Range {
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Range&) const = default;
};
Range split_range(int64_t length, int parts, int index);

class Layout {
 public:
  // placements[i] belongs to axes[i]. Several axes may shard one dimension; the outer one splits
  // first. Only one axis may split a dimension that has cuts.
  // Throws: ConfigError when a placement names a dimension that the shape lacks, when its cuts do
  //         not rise from 0 to the dimension's length with one step per coordinate, when a length
  //         is negative or an axis has no rank
  Layout(std::vector<int64_t> shape, std::vector<Axis> axes, std::vector<Placement> placements);
  // Replicated on every axis.
  Layout(std::vector<int64_t> shape, std::vector<Axis> axes);

  // This layout for a tensor that is itself the block of rank `outer_rank` in `outer`, such as a
  // parameter that is split over the tensor axis and whose blocks ZeRO shards. Each block may have
  // its own cuts, so the two need not form a product.
  // Throws: ConfigError when the shape is not that block's
  Layout inside(const Layout& outer, int outer_rank) const;

  // The shape of the tensor that the axes split; inside another layout, of that block.
  const std::vector<int64_t>& shape() const { return shape_; }
  // The shape of the whole tensor.
  const std::vector<int64_t>& whole_shape() const {
    return outer_ ? outer_->whole_shape() : shape_;
  }
  // The layout that this one is inside of; null: this is the layout of the whole tensor.
  const Layout* outer() const { return outer_.get(); }
  int outer_rank() const { return outer_rank_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<Placement>& placements() const { return placements_; }
  int num_ranks() const;

  // The part of the tensor of shape() that `rank` (row-major over the axes) holds.
  Box local_box(int rank) const;
  // The same in coordinates of the whole tensor.
  Box whole_box(int rank) const;
  // The lowest rank that holds the same values, which is at 0 on every replicated axis. Replicas of
  // a shard share an owner, and the owners' boxes cover the tensor once. Partial sums of one box
  // are different values, so each has its own owner.
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
