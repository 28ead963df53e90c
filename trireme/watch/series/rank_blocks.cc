#include "trireme/watch/series/rank_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trireme/watch/series/pyramid.h"

namespace trireme::watch {
namespace {

constexpr size_t kPlanes = 3;
constexpr size_t kCoarser = 4;  // steps that become one
constexpr size_t kMin = 0, kMean = 1, kMax = 2;
// Blocks are joined up to here. A run with slow steps writes one for every few of them, and blocks
// of one step would be lost where larger ones become coarser.
constexpr size_t kJoinedSteps = 256;
constexpr size_t kJoinedValues = size_t{1} << 18;

size_t plane_size(const RankBlock& block) {
  return static_cast<size_t>(block.num_ranks) * block.columns.size();
}

size_t bytes_of(const RankBlock& block) {
  size_t num_bytes = sizeof(block) + block.columns.size() * sizeof(std::string);
  for (const std::string& column : block.columns) num_bytes += column.size();
  return num_bytes + block.values.size() * sizeof(float) + block.steps.size() * sizeof(int64_t);
}

bool is_sound(const RankBlock& block) {
  constexpr int64_t kMostRanks = 1 << 20;
  if (block.num_ranks <= 0 || block.num_ranks > kMostRanks || block.columns.empty() ||
      block.steps.empty() || (block.num_planes != 1 && block.num_planes != kPlanes)) {
    return false;
  }
  return std::ranges::is_sorted(block.steps, std::less_equal<>()) &&
         block.values.size() == block.steps.size() * block.num_planes * plane_size(block);
}

std::optional<size_t> column_in(const RankBlock& block, std::string_view name) {
  const auto found = std::ranges::find(block.columns, name);
  if (found == block.columns.end()) return std::nullopt;
  return static_cast<size_t>(found - block.columns.begin());
}

float value_of(const RankBlock& block, size_t step, size_t plane, size_t rank, size_t column) {
  const size_t own_plane = block.num_planes == 1 ? 0 : plane;
  return block
      .values[((step * block.num_planes + own_plane) * static_cast<size_t>(block.num_ranks) +
               rank) *
                  block.columns.size() +
              column];
}

// Of one step, over `rank` or all ranks: the smallest and largest of the group, the mean of means.
Summary summary_of(const RankBlock& block, size_t step, size_t column,
                   std::optional<int64_t> rank) {
  Summary bounds, means;
  const size_t first = rank ? static_cast<size_t>(*rank) : 0;
  const size_t end = rank ? first + 1 : static_cast<size_t>(block.num_ranks);
  for (size_t each = first; each < end; ++each) {
    bounds.add(value_of(block, step, kMin, each, column));
    bounds.add(value_of(block, step, kMax, each, column));
    means.add(value_of(block, step, kMean, each, column));
  }
  bounds.sum = means.sum;
  bounds.count = means.count;
  return bounds;
}

RankBlock coarser(const RankBlock& block) {
  RankBlock result{.num_ranks = block.num_ranks, .columns = block.columns, .num_planes = kPlanes};
  const size_t size = plane_size(block);
  const size_t num_columns = block.columns.size();
  for (size_t begin = 0; begin < block.steps.size(); begin += kCoarser) {
    const size_t end = std::min(block.steps.size(), begin + kCoarser);
    result.steps.push_back(block.steps[begin]);
    const size_t base = result.values.size();
    result.values.resize(base + kPlanes * size, std::numeric_limits<float>::quiet_NaN());
    for (size_t place = 0; place < size; ++place) {
      Summary total;
      for (size_t step = begin; step < end; ++step) {
        const Summary each =
            summary_of(block, step, place % num_columns, static_cast<int64_t>(place / num_columns));
        total.min = std::min(total.min, each.min);
        total.max = std::max(total.max, each.max);
        total.sum += each.sum;
        total.count += each.count;
      }
      if (total.count == 0) continue;
      result.values[base + kMin * size + place] = static_cast<float>(total.min);
      result.values[base + kMean * size + place] = static_cast<float>(total.sum / total.count);
      result.values[base + kMax * size + place] = static_cast<float>(total.max);
    }
  }
  return result;
}

bool can_join(const RankBlock& block, const RankBlock& next) {
  return block.num_ranks == next.num_ranks && block.num_planes == next.num_planes &&
         block.steps.size() + next.steps.size() <= kJoinedSteps &&
         block.values.size() + next.values.size() <= kJoinedValues && block.columns == next.columns;
}

void append(std::deque<RankBlock>& blocks, RankBlock block) {
  if (!blocks.empty() && can_join(blocks.back(), block)) {
    RankBlock& last = blocks.back();
    last.steps.insert(last.steps.end(), block.steps.begin(), block.steps.end());
    last.values.insert(last.values.end(), block.values.begin(), block.values.end());
    return;
  }
  if (!blocks.empty()) {
    blocks.back().steps.shrink_to_fit();
    blocks.back().values.shrink_to_fit();
  }
  blocks.push_back(std::move(block));
}

void keep_steps_before(RankBlock& block, int64_t step) {
  const auto end = std::ranges::lower_bound(block.steps, step);
  const auto count = static_cast<size_t>(end - block.steps.begin());
  block.steps.resize(count);
  block.values.resize(count * block.num_planes * plane_size(block));
}

}  // namespace

void RankBlocks::clear() {
  blocks_.clear();
  num_bytes_ = 0;
}

void RankBlocks::add(RankBlock block) {
  if (!is_sound(block)) return;
  while (!blocks_.empty() && blocks_.back().steps.back() >= block.steps.front()) {
    num_bytes_ -= bytes_of(blocks_.back());
    keep_steps_before(blocks_.back(), block.steps.front());
    num_bytes_ += bytes_of(blocks_.back());
    if (!blocks_.back().steps.empty()) break;
    blocks_.pop_back();
  }
  if (!blocks_.empty()) num_bytes_ -= bytes_of(blocks_.back());
  const size_t first_changed = blocks_.empty() ? 0 : blocks_.size() - 1;
  append(blocks_, std::move(block));
  for (size_t i = first_changed; i < blocks_.size(); ++i) num_bytes_ += bytes_of(blocks_[i]);
  if (num_bytes_ > most_bytes_) save_memory();
}

// By bytes, so that the newest steps stay exact as long as they can, however many old blocks there
// are. What has become short is joined, and can become coarser again.
void RankBlocks::make_older_half_coarser() {
  const size_t half = num_bytes_ / 2;
  size_t num_older = 0;
  std::deque<RankBlock> kept;
  for (RankBlock& block : blocks_) {
    const size_t size = bytes_of(block);
    const bool is_newest = &block == &blocks_.back() && blocks_.size() > 1;
    const bool can_shrink = block.steps.size() > (block.num_planes == 1 ? kPlanes : 1);
    if (num_older < half && !is_newest && can_shrink) block = coarser(block);
    num_older += size;
    append(kept, std::move(block));
  }
  blocks_ = std::move(kept);
  num_bytes_ = 0;
  for (const RankBlock& block : blocks_) num_bytes_ += bytes_of(block);
}

// Blocks of one step that differ from their neighbours cannot become coarser; the oldest of all go.
void RankBlocks::save_memory() {
  size_t before = 0;
  do {
    before = num_bytes_;
    make_older_half_coarser();
  } while (num_bytes_ > most_bytes_ && num_bytes_ < before);
  while (num_bytes_ > most_bytes_ && blocks_.size() > 1) {
    num_bytes_ -= bytes_of(blocks_.front());
    blocks_.pop_front();
  }
}

int64_t RankBlocks::num_ranks() const { return blocks_.empty() ? 0 : blocks_.back().num_ranks; }

std::vector<std::string> RankBlocks::columns() const {
  return blocks_.empty() ? std::vector<std::string>() : blocks_.back().columns;
}

std::optional<int64_t> RankBlocks::last_step() const {
  if (blocks_.empty()) return std::nullopt;
  return blocks_.back().steps.back();
}

std::optional<RankValues> RankBlocks::values_at(std::string_view column, int64_t step) const {
  const RankBlock* best = nullptr;
  for (const RankBlock& block : blocks_) {
    if (!column_in(block, column)) continue;
    if (best && block.steps.front() > step) break;
    best = &block;
  }
  if (!best) return std::nullopt;
  const auto behind = std::ranges::upper_bound(best->steps, step);
  const size_t index =
      behind == best->steps.begin() ? 0 : static_cast<size_t>(behind - best->steps.begin()) - 1;
  RankValues result{.step = best->steps[index]};
  const size_t place = *column_in(*best, column);
  for (size_t rank = 0; rank < static_cast<size_t>(best->num_ranks); ++rank)
    result.values.push_back(value_of(*best, index, kMean, rank, place));
  return result;
}

std::optional<Points> RankBlocks::points(std::string_view column, std::optional<int64_t> rank,
                                         const PointsRequest& request) const {
  struct Place {
    const RankBlock* block;
    size_t column;
    size_t step;
  };
  std::vector<Place> places;
  bool has_column = false;
  for (const RankBlock& block : blocks_) {
    const auto index = column_in(block, column);
    if (!index || (rank && (*rank < 0 || *rank >= block.num_ranks))) continue;
    has_column = true;
    for (size_t step = 0; step < block.steps.size(); ++step) {
      if (block.steps[step] >= request.from && block.steps[step] <= request.to)
        places.push_back({&block, *index, step});
    }
  }
  if (!has_column) return std::nullopt;
  Points points{.count = static_cast<int64_t>(places.size())};
  const size_t width = bucket_width(places.size(), request.most);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (size_t begin = 0; begin < places.size(); begin += width) {
    Summary total;
    for (size_t i = begin; i < std::min(places.size(), begin + width); ++i)
      total.add(summary_of(*places[i].block, places[i].step, places[i].column, rank));
    const bool has_any = total.count > 0;
    points.add(places[begin].block->steps[places[begin].step], has_any ? total.min : kNan,
               has_any ? total.max : kNan, total.mean());
  }
  return points;
}

std::vector<int64_t> RankBlocks::some_steps(size_t most) const {
  const std::vector<int64_t> all = steps_between(INT64_MIN, INT64_MAX, SIZE_MAX);
  if (all.size() <= most) return all;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < most; ++i)
    steps.push_back(all[most == 1 ? all.size() - 1 : i * (all.size() - 1) / (most - 1)]);
  return steps;
}

std::vector<int64_t> RankBlocks::steps_between(int64_t from, int64_t to, size_t most) const {
  std::vector<int64_t> steps;
  for (const RankBlock& block : blocks_) {
    for (const int64_t step : block.steps) {
      if (step >= from && step <= to) steps.push_back(step);
    }
  }
  if (steps.size() > most) steps.erase(steps.begin(), steps.end() - static_cast<ptrdiff_t>(most));
  return steps;
}

}  // namespace trireme::watch
