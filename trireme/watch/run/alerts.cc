#include "trireme/watch/run/alerts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

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
  return metrics.first_ending("_per_second");
}

void AlertScan::clear() { *this = AlertScan(limits_); }

std::vector<Alert> AlertScan::take_alerts() {
  const std::deque<Alert> taken = std::exchange(alerts_, {});
  return {taken.begin(), taken.end()};
}

void AlertScan::add(const AlertRow& row, const char* kind, std::string text) {
  const double time = row.value("time");
  alerts_.push_back({.time = std::isfinite(time) ? time : 0,
                     .step = row.step(),
                     .kind = kind,
                     .text = std::move(text)});
  if (alerts_.size() > kMostAlerts) alerts_.pop_front();
}

void AlertScan::look_at_loss(const AlertRow& row) {
  if (!row.has("loss")) return;
  const double loss = row.value("loss");
  if (!std::isfinite(loss)) {
    // The first of several in a row says it.
    if (!is_nan_) add(row, "nan", "the loss is not finite");
    is_nan_ = true;
    return;
  }
  is_nan_ = false;
  if (losses_.size() >= kFewestBefore) {
    const double mean = mean_of(losses_);
    const double above = loss - mean;
    const double least = (limits_.spike_share - 1) * std::abs(mean);
    if (above > least && above > limits_.spike_deviations * deviation_of(losses_, mean)) {
      add(row, "spike",
          format("the loss rose to %.4g, from a mean of %.4g over the %zu steps before", loss, mean,
                 losses_.size()));
      losses_.clear();  // what follows is judged by itself
    }
  }
  keep(losses_, loss, limits_.window);
}

void AlertScan::look_at_speed(const AlertRow& row) {
  if (speed_.empty()) speed_ = row.speed_name();
  if (speed_.empty()) return;
  const double speed = row.value(speed_);
  if (!std::isfinite(speed)) return;
  const bool can_judge = speeds_.size() >= kFewestBefore;
  const double usual = can_judge ? median_of(speeds_) : 0;
  if (!can_judge || speed >= limits_.slow_share * usual) {
    num_slow_ = 0;
    keep(speeds_, speed, limits_.window);
    return;
  }
  if (++num_slow_ == limits_.slow_steps) {
    add(row, "slow",
        format(usual >= 1000 ? "%s is %.0f for %lld steps, %.0f %% of its median of %.0f"
                             : "%s is %.4g for %lld steps, %.0f %% of its median of %.4g",
               speed_.c_str(), speed, static_cast<long long>(num_slow_), 100 * speed / usual,
               usual));
  }
  // A run that stays slow finds a new median in time.
  if (num_slow_ > static_cast<int64_t>(limits_.window)) keep(speeds_, speed, limits_.window);
}

void AlertScan::look_at_gap(const AlertRow& row) {
  const double time = row.value("time");
  const double seconds = row.value("step_seconds");
  if (std::isfinite(time) && time > 0) {
    const double usual = step_seconds_.empty() ? 0 : median_of(step_seconds_);
    const double most = std::max(limits_.stall_seconds, limits_.stall_steps * usual);
    if (last_time_ > 0 && time - last_time_ > most) {
      add(row, "stall",
          format("%.0f s passed before this step; a step takes %.3g s", time - last_time_, usual));
    }
    last_time_ = time;
  }
  if (std::isfinite(seconds)) keep(step_seconds_, seconds, limits_.window);
}

void AlertScan::look_at_experts(const AlertRow& row) {
  for (const std::string& list : row.list_names()) {
    if (!list.starts_with("expert_tokens")) continue;
    const std::vector<double> tokens = row.list(list);
    const size_t count = tokens.size();
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
      add(row, "expert",
          concat("expert ", expert, " of ", list, " got less than ",
                 format("%.0f %%", 100 * limits_.starving_share), " of an even share in ",
                 place->steps, " steps"));
    }
  }
}

void AlertScan::add(const AlertRow& row) {
  look_at_loss(row);
  look_at_speed(row);
  look_at_gap(row);
  look_at_experts(row);
}

namespace {

class ColumnsRow final : public AlertRow {
 public:
  ColumnsRow(const MetricColumns& metrics, size_t row) : metrics_(metrics), row_(row) {}
  int64_t step() const override { return metrics_.step_at(row_); }
  bool has(std::string_view name) const override { return metrics_.has(name); }
  double value(std::string_view name) const override { return metrics_.value(name, row_); }
  std::string speed_name() const override { return ""; }  // update() has looked for it
  std::vector<std::string> list_names() const override {
    std::vector<std::string> names;
    for (const auto& [list, count] : metrics_.lists()) {
      if (count >= 2) names.push_back(list);
    }
    return names;
  }
  std::vector<double> list(const std::string& name) const override {
    return metrics_.list_values(name, row_);
  }

 private:
  const MetricColumns& metrics_;
  size_t row_;
};

}  // namespace

bool AlertScan::update(const MetricColumns& metrics, size_t most_rows) {
  // The rows may be as many as before again, with other values.
  if (next_row_ > metrics.num_rows() || metrics.num_returns() != num_returns_) clear();
  num_returns_ = metrics.num_returns();
  if (speed_.empty() && next_row_ < metrics.num_rows()) speed_ = speed_column(metrics);
  const size_t end = next_row_ + std::min(most_rows, metrics.num_rows() - next_row_);
  for (; next_row_ < end; ++next_row_) add(ColumnsRow(metrics, next_row_));
  return next_row_ < metrics.num_rows();
}

const MetricField* LineRow::find(std::string_view name) const {
  const auto found = std::ranges::find(line_.fields(), name, &MetricField::name);
  return found == line_.fields().end() ? nullptr : &*found;
}

double LineRow::value(std::string_view name) const {
  const MetricField* const field = find(name);
  const bool is_number = field && !field->is_list && field->count == 1;
  return is_number ? line_.values_of(*field).front() : std::numeric_limits<double>::quiet_NaN();
}

std::string LineRow::speed_name() const {
  for (const MetricField& field : line_.fields()) {
    if (field.name.ends_with("_per_second")) return std::string(field.name);
  }
  return "";
}

std::vector<std::string> LineRow::list_names() const {
  std::vector<std::string> names;
  for (const MetricField& field : line_.fields()) {
    if (field.is_list && field.count >= 2) names.emplace_back(field.name);
  }
  return names;
}

std::vector<double> LineRow::list(const std::string& name) const {
  const MetricField* const field = find(name);
  if (!field) return {};
  const std::span<const double> values = line_.values_of(*field);
  return {values.begin(), values.end()};
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
                              static_cast<double>(space.available) / (1 << 30), 100 * share),
               .lasts = true};
}

std::optional<Alert> memory_alert(double peak_bytes, int64_t machine_bytes,
                                  const AlertLimits& limits, double now) {
  if (machine_bytes <= 0 || !std::isfinite(peak_bytes)) return std::nullopt;
  const double share = peak_bytes / static_cast<double>(machine_bytes);
  if (share < limits.used_memory_share) return std::nullopt;
  return Alert{
      .time = now,
      .kind = "memory",
      .text = format("the largest rank has held %.1f GiB, %.0f %% of this machine's memory",
                     peak_bytes / (1 << 30), 100 * share),
      .lasts = true};
}

std::optional<Alert> memory_alert(const MetricColumns& metrics, int64_t machine_bytes,
                                  const AlertLimits& limits, double now) {
  const auto peak = metrics.last("peak_rss_bytes");
  if (!peak) return std::nullopt;
  std::optional<Alert> alert = memory_alert(peak->second, machine_bytes, limits, now);
  if (alert) alert->step = metrics.step_at(peak->first);
  return alert;
}

}  // namespace trireme::watch
