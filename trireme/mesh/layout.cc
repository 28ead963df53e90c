#include "trireme/mesh/layout.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"

namespace trireme::mesh {

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kReplicated: return "replicated";
    case Placement::Kind::kSharded: return concat("sharded(", placement.dim, ")");
    case Placement::Kind::kPartial: return "partial";
  }
  TRIREME_ASSERT(false, "placement kind ", static_cast<int>(placement.kind));
}

Placement parse_placement(const std::string& text) {
  if (text == "replicated") return Placement::replicated();
  if (text == "partial") return Placement::partial();
  constexpr std::string_view kPrefix = "sharded(";
  int dim = -1;
  if (text.starts_with(kPrefix) && text.ends_with(')')) {
    const char* end = text.data() + text.size() - 1;
    if (std::from_chars(text.data() + kPrefix.size(), end, dim).ptr != end) dim = -1;
  }
  TRIREME_CHECK(dim >= 0, "placement \"", text,
                "\" is unknown; expected replicated, partial or sharded(<dim>)");
  return Placement::sharded(dim);
}

int64_t Box::numel() const {
  int64_t product = 1;
  for (int64_t length : size) product *= length;
  return product;
}

Box intersect(const Box& a, const Box& b) {
  TRIREME_ASSERT(a.offset.size() == b.offset.size(), "boxes of different dimension");
  Box result = a;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    result.offset[d] = begin;
    result.size[d] = std::max<int64_t>(0, end - begin);
  }
  return result;
}

Range split_range(int64_t length, int parts, int index) {
  const int64_t base = length / parts;
  const int64_t longer = length % parts;  // so many parts have one element more
  return {index * base + std::min<int64_t>(index, longer), base + (index < longer ? 1 : 0)};
}

Layout::Layout(std::vector<int64_t> shape, std::vector<Axis> axes,
               std::vector<Placement> placements)
    : shape_(std::move(shape)), axes_(std::move(axes)), placements_(std::move(placements)) {
  TRIREME_CHECK_OP(axes_.size(), ==, placements_.size(), "a layout needs one placement per axis");
  for (int64_t length : shape_)
    TRIREME_CHECK(length >= 0, "a layout's shape has length ", length, "; expected at least 0");
  for (size_t i = 0; i < axes_.size(); ++i) {
    TRIREME_CHECK(axes_[i].size >= 1, "axis \"", axes_[i].name, "\" of a layout has size ",
                  axes_[i].size, "; expected at least 1");
    if (placements_[i].kind != Placement::Kind::kSharded) continue;
    TRIREME_CHECK(placements_[i].dim >= 0 && placements_[i].dim < static_cast<int>(shape_.size()),
                  "axis \"", axes_[i].name, "\" shards dimension ", placements_[i].dim,
                  " of a tensor of ", shape_.size(), " dimensions");
  }
}

Layout::Layout(std::vector<int64_t> shape, std::vector<Axis> axes)
    : Layout(std::move(shape), axes, std::vector<Placement>(axes.size())) {}

int Layout::num_ranks() const {
  int product = 1;
  for (const Axis& axis : axes_) product *= axis.size;
  return product;
}

Box Layout::local_box(int rank) const {
  TRIREME_ASSERT(rank >= 0 && rank < num_ranks(), rank, " of ", num_ranks(), " ranks");
  const std::vector<int> coordinates = coordinates_of(axes_, rank);
  Box box{std::vector<int64_t>(shape_.size(), 0), shape_};
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (placements_[i].kind != Placement::Kind::kSharded) continue;
    const int dim = placements_[i].dim;
    const Range part = split_range(box.size[dim], axes_[i].size, coordinates[i]);
    box.offset[dim] += part.offset;
    box.size[dim] = part.size;
  }
  return box;
}

int Layout::owner(int rank) const {
  TRIREME_ASSERT(rank >= 0 && rank < num_ranks(), rank, " of ", num_ranks(), " ranks");
  std::vector<int> coordinates = coordinates_of(axes_, rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (placements_[i].kind == Placement::Kind::kReplicated) coordinates[i] = 0;
  }
  return rank_of(axes_, coordinates);
}

}  // namespace trireme::mesh
