// What each rank says of a step for the series of the run (docs/design/series-format.md). It
// travels in the exchange at the end of a step, beside the numbers of the metrics.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/machine/temperature.h"
#include "trireme/comm/recorder/wait_sums.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metric_table.h"
#include "trireme/train/metrics/series_block.h"
#include "trireme/train/metrics/tensorboard_events.h"

namespace trireme::train {

// Of this rank in one step.
struct OwnTimes {
  std::chrono::nanoseconds waited{};  // for other ranks: the communication below, and the rest
  std::map<std::string_view, std::chrono::nanoseconds> communication{};  // by axis
  int64_t units = 0;                                                     // that it has computed on
};

// A step of all ranks.
struct RankRow {
  SeriesShape shape{};
  std::vector<float> values{};  // [ranks, columns]
  std::vector<WaitRecord> waits{};
};

// For TensorBoard: the seconds of the rank that waited longest on each axis, under the column's
// name. What no rank knows is left out.
std::vector<Scalar> axis_scalars(const RankRow& row);

// Not thread safe.
class RankNumbers {
 public:
  // num_ranks: those that meet at the end of a step. waits: whom this rank waits for, counted from
  // here on; null: unknown
  RankNumbers(const RunConfig& config, int num_ranks, std::shared_ptr<comm::WaitSums> waits);

  // Whether a step of all ranks is written: watch.ranks, and a row of at most kMostRowBytes.
  static bool are_wanted(const RunConfig& config, int num_ranks);

  // This rank's numbers for the exchange, as many as every other rank's.
  // Comm: kFixed numbers, one for each axis with communication, and in every kWaitInterval-th step
  //       two for each of kMostSent waits
  std::vector<double> mine(int64_t step, const OwnTimes& times);

  // The row of a step from the metrics of every rank that differ by rank, and its mine().
  // all: by rank
  struct Said {
    StepMetrics metrics;
    std::span<const double> numbers;
  };
  RankRow row(int64_t step, std::span<const Said> all);

  static constexpr int kFixed = 3;
  static constexpr int64_t kWaitInterval = 16;
  static constexpr int kMostSent = 8;
  // How many numbers mine() has in a step.
  size_t size(int64_t step) const;

 private:
  bool has_waits(int64_t step) const { return step % kWaitInterval == 0 || step == last_step_; }
  SeriesShape shape() const;
  void add_waits(int64_t step, int waiter, std::span<const double> numbers, RankRow& row) const;

  const int num_ranks_;
  const int64_t last_step_;
  const bool is_on_cpu_;
  std::vector<std::string_view> axes_;  // with communication
  std::shared_ptr<comm::WaitSums> waits_;
  ProcessorTemperature temperature_;
  bool has_temperature_ = false;  // of any rank, so far
};

}  // namespace trireme::train
