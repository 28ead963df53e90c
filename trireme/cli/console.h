// Shows a training run on the terminal: one line that updates, or plain lines when the output is
// not a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "trireme/train/trainer.h"

namespace trireme::cli::inline internal {

class Console : public train::TrainObserver {
 public:
  Console();
  ~Console() override;  // leaves the cursor on a new line
  void on_start(const train::RunConfig& config, const train::RunSummary& summary) override;
  void on_step(const train::StepMetrics& metrics) override;
  void on_finding(const std::string& line) override;
  void on_wait(std::span<const int> ranks, double seconds) override;
  void on_checkpoint(const std::filesystem::path& path, double seconds,
                     double stall_seconds) override;
  void on_profile(const train::ProfileReport& report) override;
  void on_end(train::Outcome outcome);

 private:
  void print_line(const std::string& line);
  void update_line(std::string line);

  bool is_terminal_;
  int64_t num_steps_ = 0;
  int64_t print_interval_ = 1;           // steps between plain lines
  int64_t num_new_steps_ = 0;            // finished by this process
  bool line_open_ = false;               // an updating line still lacks its newline
  double seconds_per_step_ = 0;          // running mean, for the time left
  std::optional<double> noise_scale_{};  // of the last step
  double next_wait_line_ = 0;            // print another plain line when a wait reaches this
};

// printf's text, cut at 255 characters.
template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, args...);
  return text;
}

// "waiting for rank 3's disk: 40s"; names only some of many ranks.
std::string describe_wait(std::span<const int> ranks, double seconds);
// "2.4 M", "17 k", "823".
std::string human_count(double count);
// "1.5 GiB", "312 MiB".
std::string human_bytes(double bytes);
// "64 x 32", "scalar".
std::string shape_text(std::span<const int64_t> shape);
// "2m 05s", "1h 03m".
std::string human_duration(double seconds);

}  // namespace trireme::cli::inline internal
