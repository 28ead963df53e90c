#include "trireme/cli/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <unistd.h>

#include "trireme/cli/console.h"

namespace trireme::cli::inline internal {
namespace {

constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), is_terminal_(isatty(STDOUT_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (shown_percent_ >= 0) std::printf("\r\033[K");
}

void ProgressBar::update(int64_t done, int64_t total) {
  const int percent = total > 0 ? static_cast<int>(100 * done / total) : 100;
  if (!is_terminal_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  std::string bar(kWidth, ' ');
  std::fill_n(bar.begin(), kWidth * percent / 100, '#');
  std::printf("\r\033[K%-7s [%s] %3d%%  %s of %s", label_.c_str(), bar.c_str(), percent,
              human_bytes(static_cast<double>(done)).c_str(),
              human_bytes(static_cast<double>(total)).c_str());
  std::fflush(stdout);
}

}  // namespace trireme::cli::inline internal
