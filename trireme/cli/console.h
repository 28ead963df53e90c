// Shows a training run: about twenty lines of steps that stay, on a terminal with one that updates
// in between, and the summary of what the run has reached at its end. For other long work, a bar
// that updates on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/metrics/metrics.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

// The last lines that `trireme train` prints. Summarises the steps of this process.
class ClosingSummary {
 public:
  void add(const train::StepMetrics& metrics);
  // A checkpoint is on the disk.
  void add_checkpoint(std::string path) { checkpoint_ = std::move(path); }

  bool is_empty() const { return num_steps_ == 0; }
  // "done    800 steps in 3m 20s, 12.4 k tokens/s", the losses, the best validation, the
  // checkpoint.
  std::vector<std::string> lines(double seconds) const;

 private:
  struct Validation {
    double loss = 0;
    int64_t step = 0;
  };

  int64_t num_steps_ = 0;
  std::string unit_{};
  double units_ = 0;
  double step_seconds_ = 0;
  double first_loss_ = 0;
  double last_loss_ = 0;
  std::optional<Validation> best_{};
  std::optional<Validation> last_{};
  std::string checkpoint_{};
};

// The command to go on with: a look at what the run of this task has trained. program: "trireme",
// or one around tasks of its own, which has fewer commands.
std::string next_command(const std::string& program, const std::string& task,
                         const std::string& folder);

// A bar that updates on a terminal; nothing elsewhere. Not thread safe.
class ProgressBar {
 public:
  // label: what is being done, such as "encode"
  // unit: of what is counted; "": bytes
  // stream: stdout, or stderr where stdout has what the command makes
  explicit ProgressBar(std::string label, std::string unit = "", std::FILE* stream = stdout);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // erases it

  void update(int64_t done, int64_t total);

 private:
  std::string label_;
  std::string unit_;
  std::FILE* stream_;
  bool is_terminal_;
  int shown_percent_ = -1;
};

class Console : public train::TrainObserver {
 public:
  Console();
  ~Console() override;  // leaves the cursor on a new line
  void on_start(const train::RunConfig& config, const train::RunSummary& summary) override;
  void on_step(const train::StepMetrics& metrics) override;
  void on_finding(const std::string& line) override;
  void on_wait(std::span<const int> ranks, double seconds) override;
  void on_callback_wait(const std::string& callback, std::span<const int> ranks,
                        double seconds) override;
  void on_checkpoint(const std::filesystem::path& path, double seconds,
                     double stall_seconds) override;
  void on_profile(const train::ProfileReport& report) override;
  void on_end(train::Outcome outcome);
  // Gives every line that stays to `keep` too, for a log. One thread at a time calls it.
  void keep_lines(std::function<void(const std::string& line)> keep) { keep_ = std::move(keep); }

 private:
  void show_wait(const std::string& line, double seconds);
  std::string step_line(const train::StepMetrics& metrics, double left) const;
  void print_line(const std::string& line);
  void update_line(std::string line);

  std::function<void(const std::string& line)> keep_{};
  std::recursive_mutex mutex_;  // waits are told by another thread
  bool is_terminal_;
  int64_t resumed_step_ = 0;
  int64_t num_steps_ = 0;
  double epochs_ = 0;                    // 0: the config counts steps
  int64_t print_interval_ = 1;           // steps between lines that stay
  int64_t num_new_steps_ = 0;            // finished by this process
  bool line_open_ = false;               // an updating line still lacks its newline
  double seconds_per_step_ = 0;          // running mean, for the time left
  std::optional<double> noise_scale_{};  // of the last step
  ClosingSummary summary_{};
  std::chrono::steady_clock::time_point start_{};
  std::string next_command_{};
  double next_wait_line_ = 0;  // print another plain line when a wait reaches this
};

// "waiting for rank 3's disk: 40s"; names only some of many ranks.
std::string describe_wait(std::span<const int> ranks, double seconds);
// "waiting for the callback command on rank 0: 40s".
std::string describe_callback_wait(const std::string& callback, std::span<const int> ranks,
                                   double seconds);
// "2.4 M", "17 k", "823".
std::string human_count(double count);
// "1.5 GiB", "312 MiB".
std::string human_bytes(double bytes);
// "64 x 32", "scalar".
std::string shape_text(std::span<const int64_t> shape);
// "2m 05s", "1h 03m".
std::string human_duration(double seconds);

}  // namespace trireme::cli
