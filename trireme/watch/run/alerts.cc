#include "trireme/watch/run/alerts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"

namespace trireme::watch {
namespace {

constexpr size_t kFewestBefore = 8;  // values that a judgement needs
constexpr size_t kMostStreaks = 256;

void keep(std::deque<double>& values, double value, size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

double mean_of(const std::deque<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::deque<double>& values, double mean) {
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double median_of(const std::deque<double>& values) {
  return median(std::vector<double>(values.begin(), values.end()));
}

}  // namespace

std::string speed_column(const MetricColumns& metrics) {
  for (const std::string& name : metrics.names()) {
    if (name.ends_with("_per_second")) return name;
  }
  return "";
}

void AlertScan::clear() { *this = AlertScan(limits_); }

void AlertScan::add(const MetricColumns& metrics, size_t row, const char* kind, std::string text) {
  const double time = metrics.value("time", row);
  alerts_.push_back({.time = std::isfinite(time) ? time : 0,
                     .step = metrics.step_at(row),
                     .kind = kind,
                     .text = std::move(text)});
  if (alerts_.size() > kMostAlerts) alerts_.pop_front();
}

void AlertScan::look_at_loss(const MetricColumns& metrics, size_t row) {
  if (!metrics.has("loss")) return;
  const double loss = metrics.value("loss", row);
  if (!std::isfinite(loss)) {
    // The first of several in a row says it.
    if (!is_nan_) add(metrics, row, "nan", "the loss is not finite");
    is_nan_ = true;
    return;
  }
  is_nan_ = false;
  if (losses_.size() >= kFewestBefore) {
    const double mean = mean_of(losses_);
    const double above = loss - mean;
    const double least = (limits_.spike_share - 1) * std::abs(mean);
    if (above > least && above > limits_.spike_deviations * deviation_of(losses_, mean)) {
      add(metrics, row, "spike",
          format("the loss rose to %.4g, from a mean of %.4g over the %zu steps before", loss, mean,
                 losses_.size()));
      losses_.clear();  // what follows is judged by itself
    }
  }
  keep(losses_, loss, limits_.window);
}

void AlertScan::look_at_speed(const MetricColumns& metrics, size_t row) {
  if (speed_.empty()) return;
  const double speed = metrics.value(speed_, row);
  if (!std::isfinite(speed)) return;
  const bool can_judge = speeds_.size() >= kFewestBefore;
  const double usual = can_judge ? median_of(speeds_) : 0;
  if (!can_judge || speed >= limits_.slow_share * usual) {
    num_slow_ = 0;
    keep(speeds_, speed, limits_.window);
    return;
  }
  if (++num_slow_ == limits_.slow_steps) {
    add(metrics, row, "slow",
        format("%s is %.4g for %lld steps, %.0f %% of its median of %.4g", speed_.c_str(), speed,
               static_cast<long long>(num_slow_), 100 * speed / usual, usual));
  }
  // A run that stays slow finds a new median in time.
  if (num_slow_ > static_cast<int64_t>(limits_.window)) keep(speeds_, speed, limits_.window);
}

void AlertScan::look_at_gap(const MetricColumns& metrics, size_t row) {
  const double time = metrics.value("time", row);
  const double seconds = metrics.value("step_seconds", row);
  if (std::isfinite(time) && time > 0) {
    const double usual = step_seconds_.empty() ? 0 : median_of(step_seconds_);
    const double most = std::max(limits_.stall_seconds, limits_.stall_steps * usual);
    if (last_time_ > 0 && time - last_time_ > most) {
      add(metrics, row, "stall",
          format("%.0f s passed before this step; a step takes %.3g s", time - last_time_, usual));
    }
    last_time_ = time;
  }
  if (std::isfinite(seconds)) keep(step_seconds_, seconds, limits_.window);
}

void AlertScan::look_at_experts(const MetricColumns& metrics, size_t row) {
  for (const auto& [list, count] : metrics.lists()) {
    if (!list.starts_with("tokens_per_expert") || count < 2) continue;
    const std::vector<double> tokens = metrics.list_values(list, row);
    double total = 0;
    for (const double each : tokens) total += std::isfinite(each) ? each : 0;
    const double least = limits_.starving_share * total / static_cast<double>(count);
    auto place = std::ranges::find(streaks_, list, &Streak::list);
    if (place == streaks_.end()) {
      if (streaks_.size() >= kMostStreaks) return;
      streaks_.push_back({.list = list});
      place = std::prev(streaks_.end());
    }
    const auto starving = std::ranges::find_if(
        tokens, [&](double each) { return total > 0 && std::isfinite(each) && each < least; });
    if (starving == tokens.end()) {
      place->steps = 0;
      continue;
    }
    const auto expert = static_cast<size_t>(starving - tokens.begin());
    place->steps = place->steps > 0 && place->expert == expert ? place->steps + 1 : 1;
    place->expert = expert;
    if (place->steps == limits_.starving_steps) {
      add(metrics, row, "expert",
          concat("expert ", expert, " of ", list, " got less than ",
                 format("%.0f %%", 100 * limits_.starving_share), " of an even share in ",
                 place->steps, " steps"));
    }
  }
}

bool AlertScan::update(const MetricColumns& metrics, size_t most_rows) {
  // The rows may be as many as before again, with other values.
  if (next_row_ > metrics.num_rows() || metrics.num_returns() != num_returns_) clear();
  num_returns_ = metrics.num_returns();
  if (speed_.empty()) speed_ = speed_column(metrics);
  const size_t end = next_row_ + std::min(most_rows, metrics.num_rows() - next_row_);
  for (; next_row_ < end; ++next_row_) {
    look_at_loss(metrics, next_row_);
    look_at_speed(metrics, next_row_);
    look_at_gap(metrics, next_row_);
    look_at_experts(metrics, next_row_);
  }
  return next_row_ < metrics.num_rows();
}

std::optional<Alert> disk_alert(const std::filesystem::path& folder, const AlertLimits& limits,
                                double now) {
  std::error_code problem;
  const std::filesystem::space_info space = std::filesystem::space(folder, problem);
  if (problem || space.capacity == 0 || space.available == static_cast<std::uintmax_t>(-1))
    return std::nullopt;
  const double share = static_cast<double>(space.available) / static_cast<double>(space.capacity);
  if (share >= limits.free_disk_share) return std::nullopt;
  return Alert{.time = now,
               .kind = "disk",
               .text = format("the disk of the run's folder has %.1f GiB left, %.1f %% of it",
                              static_cast<double>(space.available) / (1 << 30), 100 * share)};
}

std::optional<Alert> memory_alert(const MetricColumns& metrics, int64_t machine_bytes,
                                  const AlertLimits& limits, double now) {
  const auto peak = metrics.last("peak_rss_bytes");
  if (!peak || machine_bytes <= 0 || !std::isfinite(peak->second)) return std::nullopt;
  const double share = peak->second / static_cast<double>(machine_bytes);
  if (share < limits.used_memory_share) return std::nullopt;
  return Alert{
      .time = now,
      .step = metrics.step_at(peak->first),
      .kind = "memory",
      .text = format("the largest rank has held %.1f GiB, %.0f %% of this machine's memory",
                     peak->second / (1 << 30), 100 * share)};
}

}  // namespace trireme::watch
