// A bar that updates on a terminal; nothing elsewhere.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::cli::inline internal {

// Not thread safe.
class ProgressBar {
 public:
  // label: what is being done, such as "encode"
  explicit ProgressBar(std::string label);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // erases it

  // In bytes.
  void update(int64_t done, int64_t total);

 private:
  std::string label_;
  bool is_terminal_;
  int shown_percent_ = -1;
};

}  // namespace trireme::cli::inline internal
