#include "trireme/mesh/layout.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include <c10/util/ArrayRef.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::mesh {

namespace {

// Reads a number from [text, end) and moves `text` past it; -1 when there is none.
int64_t parse_number(const char*& text, const char* end) {
  int64_t value = -1;
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || value < 0) return -1;
  text = rest;
  return value;
}

// Parses "0 at 0,3,7". False for anything else.
bool parse_split(std::string_view text, Placement& placement) {
  const char* at = text.data();
  const char* end = at + text.size();
  const int64_t dim = parse_number(at, end);
  if (dim < 0 || dim > std::numeric_limits<int>::max()) return false;
  placement = Placement::sharded(static_cast<int>(dim));
  constexpr std::string_view kAt = " at ";
  if (at == end) return true;
  if (!std::string_view(at, end).starts_with(kAt)) return false;
  for (at += kAt.size();; ++at) {
    placement.cuts.push_back(parse_number(at, end));
    if (placement.cuts.back() < 0) return false;
    if (at == end) return true;
    if (*at != ',') return false;
  }
}

void check_cuts(const std::vector<int64_t>& cuts, const Axis& axis, int64_t length) {
  TRIREME_CHECK(std::ssize(cuts) == axis.size + 1 && cuts.front() == 0 && cuts.back() == length &&
                    std::ranges::is_sorted(cuts),
                "axis \"", axis.name, "\" of size ", axis.size, " cuts a length of ", length,
                " at another place than ", axis.size + 1, " ascending ones from 0 to ", length);
}

}  // namespace

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kReplicated: return "replicated";
    case Placement::Kind::kSharded: {
      std::string text = concat("sharded(", placement.dim);
      for (size_t i = 0; i < placement.cuts.size(); ++i) {
        text += concat(i == 0 ? " at " : ",", placement.cuts[i]);
      }
      return text + ")";
    }
    case Placement::Kind::kPartial: return "partial";
  }
  TRIREME_ASSERT(false, "placement kind ", static_cast<int>(placement.kind));
}

Placement parse_placement(const std::string& text) {
  if (text == "replicated") return Placement::replicated();
  if (text == "partial") return Placement::partial();
  constexpr std::string_view kPrefix = "sharded(";
  Placement placement;
  const bool is_split =
      text.starts_with(kPrefix) && text.ends_with(')') &&
      parse_split(std::string_view(text).substr(kPrefix.size(), text.size() - kPrefix.size() - 1),
                  placement);
  TRIREME_CHECK(is_split, "placement \"", shown(text),
                "\" is unknown; expected replicated, partial, sharded(<dim>) or sharded(<dim> at "
                "<cuts>)");
  return placement;
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
  const int64_t longer = length % parts;  // this many parts have one element more
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
    if (placements_[i].cuts.empty()) continue;
    check_cuts(placements_[i].cuts, axes_[i], shape_[placements_[i].dim]);
    const auto splits_too = [&](const Placement& other) {
      return &other != &placements_[i] && other.kind == Placement::Kind::kSharded &&
             other.dim == placements_[i].dim;
    };
    TRIREME_CHECK(std::ranges::none_of(placements_, splits_too), "dimension ", placements_[i].dim,
                  " has cuts of axis \"", axes_[i].name, "\" and is split by another axis too");
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
    const auto& [kind, dim, cuts] = placements_[i];
    const int at = coordinates[i];
    const Range part = cuts.empty() ? split_range(box.size[dim], axes_[i].size, at)
                                    : Range{cuts[at], cuts[at + 1] - cuts[at]};
    box.offset[dim] += part.offset;
    box.size[dim] = part.size;
  }
  return box;
}

Layout Layout::inside(const Layout& outer, int outer_rank) const {
  TRIREME_CHECK(outer.local_box(outer_rank).size == shape_, "a layout of ",
                c10::IntArrayRef(shape_), " is inside a block of ",
                c10::IntArrayRef(outer.local_box(outer_rank).size));
  Layout result = *this;
  result.outer_ = std::make_shared<Layout>(outer);
  result.outer_rank_ = outer_rank;
  return result;
}

Box Layout::whole_box(int rank) const {
  Box box = local_box(rank);
  if (!outer_) return box;
  const Box block = outer_->whole_box(outer_rank_);
  for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] += block.offset[d];
  return box;
}

bool Layout::operator==(const Layout& other) const {
  const bool same_outer =
      outer_ && other.outer_ ? *outer_ == *other.outer_ : !outer_ && !other.outer_;
  return shape_ == other.shape_ && axes_ == other.axes_ && placements_ == other.placements_ &&
         same_outer && outer_rank_ == other.outer_rank_;
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
