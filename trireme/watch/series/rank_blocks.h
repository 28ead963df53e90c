// The numbers of every rank in memory: of each block of steps a value for each rank and column.
// What is old becomes coarser when memory is short, and keeps the smallest and the largest value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/watch/series/points.h"

namespace trireme::watch {

struct RankBlock {
  int64_t num_ranks = 0;
  std::vector<std::string> columns{};
  // Ascending. With several planes the first step of each group.
  std::vector<int64_t> steps{};
  size_t num_planes = 1;        // 3: smallest, mean and largest of the group
  std::vector<float> values{};  // [steps, planes, ranks, columns]; NaN: unknown
};

// The values of all ranks at one step.
struct RankValues {
  int64_t step = 0;
  std::vector<float> values{};
};

// Not thread safe.
class RankBlocks {
 public:
  static constexpr size_t kMostBytes = size_t{96} << 20;
  explicit RankBlocks(size_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  // Steps of earlier blocks that are not before this block's first one are taken away: the run has
  // gone back. A block whose sizes do not fit each other is left out.
  void add(RankBlock block);
  void clear();

  // Of the newest block.
  int64_t num_ranks() const;
  std::vector<std::string> columns() const;
  std::optional<int64_t> last_step() const;
  size_t num_bytes() const { return num_bytes_; }

  // The values at the last step that is not behind `step`, or at the first one; the mean where a
  // step stands for several. Nothing when no block has the column.
  std::optional<RankValues> values_at(std::string_view column, int64_t step) const;
  // Over all ranks, or those of one rank. Nothing when no block has the column, or the rank.
  std::optional<Points> points(std::string_view column, std::optional<int64_t> rank,
                               const PointsRequest& request) const;
  // At most `most` steps that there are, even over all of them.
  std::vector<int64_t> some_steps(size_t most) const;
  // The steps from `from` to `to`, the last `most` of them.
  std::vector<int64_t> steps_between(int64_t from, int64_t to, size_t most) const;

 private:
  void make_older_half_coarser();
  void save_memory();

  size_t most_bytes_;
  size_t num_bytes_ = 0;
  std::deque<RankBlock> blocks_;  // by step
};

}  // namespace trireme::watch
