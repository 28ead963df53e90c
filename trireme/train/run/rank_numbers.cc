#include "trireme/train/run/rank_numbers.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "trireme/base/bounds.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/mesh/axis_kinds.h"

namespace trireme::train {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kTimes[] = {"step_seconds", "own_seconds", "data_seconds",
                                       "wait_seconds", "tokens"};

// The axes on which ranks of the config communicate. Gradients and weights of ranks with other
// samples are "data", whatever divides the samples.
std::vector<std::string_view> axes_of(const ParallelConfig& parallel) {
  std::vector<std::string_view> axes;
  if (parallel.pipeline > 1) axes.emplace_back("pipeline");
  if (parallel.tensor > 1) axes.emplace_back("tensor");
  if (parallel.context > 1) axes.emplace_back("context");
  if (parallel.expert > 1) axes.emplace_back("expert");
  if (sample_ranks(parallel) * parallel.context > 1) axes.emplace_back("data");
  return axes;
}

// The names that a wait may travel under, by number.
std::vector<std::string_view> wait_axes() {
  std::vector<std::string_view> axes =
      mesh::axes_where([](const mesh::AxisKind& /*kind*/) { return true; });
  axes.insert(axes.end(), {"world", "learners", "other"});
  return axes;
}

// A group of several axes, such as "shard.context", counts as its first.
double number_of_wait(const comm::WaitSums::Sum& sum) {
  const std::vector<std::string_view> axes = wait_axes();
  const std::string_view name = std::string_view(sum.group).substr(0, sum.group.find('.'));
  const auto found = std::ranges::find(axes, name);
  const std::ptrdiff_t axis = found == axes.end() ? std::ssize(axes) - 1 : found - axes.begin();
  return static_cast<double>(axis * kMaxRanks + sum.world_rank);
}

size_t most_columns(const ParallelConfig& parallel) {
  return std::size(kTimes) + axes_of(parallel).size() + kNumMemoryKinds + 2;
}

}  // namespace

RankNumbers::RankNumbers(const RunConfig& config, int num_ranks,
                         std::shared_ptr<comm::WaitSums> waits)
    : num_ranks_(num_ranks),
      last_step_(config.train.steps),
      is_on_cpu_(config.device.is_cpu()),
      axes_(axes_of(config.parallel)),
      waits_(std::move(waits)) {
  // What ranks waited for while the run started is no step's.
  if (waits_) waits_->take_largest(std::numeric_limits<size_t>::max());
}

std::vector<Scalar> axis_scalars(const RankRow& row) {
  std::vector<Scalar> scalars;
  const size_t num_columns = row.shape.columns.size();
  for (size_t column = 0; column < num_columns; ++column) {
    if (!row.shape.columns[column].starts_with("communication_seconds/")) continue;
    std::optional<double> longest;
    for (size_t at = column; at < row.values.size(); at += num_columns) {
      const double seconds = row.values[at];
      if (std::isfinite(seconds)) longest = std::max(longest.value_or(seconds), seconds);
    }
    if (longest) scalars.push_back({row.shape.columns[column], *longest});
  }
  return scalars;
}

bool RankNumbers::are_wanted(const RunConfig& config, int num_ranks) {
  const size_t row = static_cast<size_t>(num_ranks) * most_columns(config.parallel) * sizeof(float);
  return config.watch.ranks && row <= kMostRowBytes;
}

size_t RankNumbers::size(int64_t step) const {
  return kFixed + axes_.size() + (has_waits(step) ? 2 * kMostSent : 0);
}

std::vector<double> RankNumbers::mine(int64_t step, const OwnTimes& times) {
  // The host of a GPU does not wait.
  const auto known = [&](std::chrono::nanoseconds time) {
    return is_on_cpu_ ? in_seconds(time) : kNotKnown;
  };
  std::vector<double> numbers = {known(times.waited), static_cast<double>(times.units),
                                 temperature_.read().value_or(kNotKnown)};
  for (const std::string_view axis : axes_) {
    const auto found = times.communication.find(axis);
    numbers.push_back(known(found == times.communication.end() ? std::chrono::nanoseconds(0)  //
                                                               : found->second));
  }
  if (has_waits(step) && waits_) {
    for (const comm::WaitSums::Sum& sum : waits_->take_largest(kMostSent)) {
      numbers.push_back(number_of_wait(sum));
      numbers.push_back(sum.seconds);
    }
  }
  numbers.resize(size(step), -1);  // no wait
  return numbers;
}

SeriesShape RankNumbers::shape() const {
  SeriesShape shape{.num_ranks = num_ranks_, .columns = {std::begin(kTimes), std::end(kTimes)}};
  for (const std::string_view axis : axes_) {
    shape.columns.push_back(concat("communication_seconds/", axis));
  }
  if (is_on_cpu_) {
    for (const std::string_view kind : kMemoryKinds) {
      shape.columns.push_back(concat("memory_bytes/", kind));
    }
  }
  shape.columns.emplace_back("peak_bytes");
  if (has_temperature_) shape.columns.emplace_back("temperature");
  return shape;
}

void RankNumbers::add_waits(int64_t step, int waiter, std::span<const double> numbers,
                            RankRow& row) const {
  const std::vector<std::string_view> axes = wait_axes();
  for (size_t at = kFixed + axes_.size(); at + 1 < numbers.size(); at += 2) {
    if (numbers[at] < 0) return;
    const auto number = static_cast<int64_t>(numbers[at]);
    row.waits.push_back({.step = step,
                         .axis = std::string(axes.at(static_cast<size_t>(number / kMaxRanks))),
                         .waiter = waiter,
                         .awaited = static_cast<int32_t>(number % kMaxRanks),
                         .seconds = static_cast<float>(numbers[at + 1])});
  }
}

RankRow RankNumbers::row(int64_t step, std::span<const Said> all) {
  TRIREME_ASSERT(std::ssize(all) == num_ranks_, all.size(), " ranks, expected ", num_ranks_);
  for (const Said& said : all) has_temperature_ |= !std::isnan(said.numbers[2]);
  RankRow row{.shape = shape()};
  const auto add = [&](double value) { row.values.push_back(static_cast<float>(value)); };
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const auto& [metrics, numbers] = all[static_cast<size_t>(rank)];
    const double waited = numbers[0];
    const double own = metrics.step_seconds - metrics.data_seconds - waited;
    add(metrics.step_seconds);
    add(std::isnan(own) ? own : std::max(own, 0.0));
    add(metrics.data_seconds);
    add(waited);
    add(numbers[1]);
    for (size_t i = 0; i < axes_.size(); ++i) add(numbers[kFixed + i]);
    if (is_on_cpu_) {
      for (const auto field : kMemoryFields) {
        const std::optional<int64_t>& bytes = metrics.*field;
        add(bytes ? static_cast<double>(*bytes) : kNotKnown);
      }
    }
    add(static_cast<double>(metrics.peak_device_bytes.value_or(metrics.peak_rss_bytes)));
    if (has_temperature_) add(numbers[2]);
    add_waits(step, rank, numbers, row);
  }
  return row;
}

}  // namespace trireme::train
