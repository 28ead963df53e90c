// What a person would want to know of a run at once: found in its metrics as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/watch/read/metric_line.h"
#include "trireme/watch/series/metric_columns.h"

namespace trireme::watch {

struct Alert {
  double time = 0;  // seconds since 1970; 0: unknown
  int64_t step = 0;
  std::string kind{};  // nan spike stall slow expert disk memory
  std::string text{};
  bool lasts = false;  // of what is so now: `time` and `step` move on while it is
};

struct AlertLimits {
  double spike_deviations = 6;    // of the loss above its mean over the window
  double spike_share = 1.2;       // and at least this many times that mean's size
  double slow_share = 0.5;        // of the median units per second
  int64_t slow_steps = 5;         // that are all slow
  double starving_share = 0.05;   // of the tokens an expert would have by an even share
  int64_t starving_steps = 20;    // that all starve it
  double stall_steps = 20;        // of the median step, without a step
  double stall_seconds = 30;      // at least
  double free_disk_share = 0.05;  // of the file system that has the run
  double used_memory_share = 0.95;
  size_t window = 64;
};

// The numbers of one step.
class AlertRow {
 public:
  virtual ~AlertRow() = default;
  virtual int64_t step() const = 0;
  virtual bool has(std::string_view name) const = 0;
  virtual double value(std::string_view name) const = 0;  // NaN without one
  // The name of the number that counts the work in a second; "": none.
  virtual std::string speed_name() const = 0;
  // Of lists with two elements or more.
  virtual std::vector<std::string> list_names() const = 0;
  virtual std::vector<double> list(const std::string& name) const = 0;
};

// The numbers of a line of metrics.jsonl. The line must outlive the row.
class LineRow final : public AlertRow {
 public:
  explicit LineRow(const MetricLine& line) : line_(line) {}
  int64_t step() const override { return line_.step(); }
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  double value(std::string_view name) const override;
  std::string speed_name() const override;
  std::vector<std::string> list_names() const override;
  std::vector<double> list(const std::string& name) const override;

 private:
  const MetricField* find(std::string_view name) const;
  const MetricLine& line_;
};

// Not thread safe. Looks at each step once.
class AlertScan {
 public:
  static constexpr size_t kMostAlerts = 200;  // the latest
  explicit AlertScan(const AlertLimits& limits = {}) : limits_(limits) {}

  // The next step of a run.
  void add(const AlertRow& row);
  // All rows that are new, `most_rows` at most; returns whether there are more. When the run has
  // gone back it begins again.
  bool update(const MetricColumns& metrics, size_t most_rows = SIZE_MAX);
  void clear();
  std::vector<Alert> alerts() const { return {alerts_.begin(), alerts_.end()}; }
  // Takes them out.
  std::vector<Alert> take_alerts();

 private:
  struct Streak {
    std::string list{};
    int64_t steps = 0;
    size_t expert = 0;
  };
  void add(const AlertRow& row, const char* kind, std::string text);
  void look_at_loss(const AlertRow& row);
  void look_at_speed(const AlertRow& row);
  void look_at_gap(const AlertRow& row);
  void look_at_experts(const AlertRow& row);

  AlertLimits limits_;
  std::deque<Alert> alerts_;
  size_t next_row_ = 0;
  int64_t num_returns_ = 0;  // of the metrics, when their rows were looked at
  std::deque<double> losses_;
  bool is_nan_ = false;
  std::string speed_;  // the column
  std::deque<double> speeds_;
  std::deque<double> step_seconds_;
  int64_t num_slow_ = 0;
  double last_time_ = 0;
  std::vector<Streak> streaks_;
};

// The column that counts the work in a second, such as "tokens_per_second"; "": none.
std::string speed_column(const MetricColumns& metrics);

// The folder's file system, if it is nearly full. Nothing too when that cannot be found out.
std::optional<Alert> disk_alert(const std::filesystem::path& folder, const AlertLimits& limits,
                                double now);
// This machine's memory, if a rank of the run has nearly as much: peak_bytes, at its most.
std::optional<Alert> memory_alert(double peak_bytes, int64_t machine_bytes,
                                  const AlertLimits& limits, double now);
std::optional<Alert> memory_alert(const MetricColumns& metrics, int64_t machine_bytes,
                                  const AlertLimits& limits, double now);

}  // namespace trireme::watch
