#include "trireme/train/overlap_choice.h"

#include <algorithm>
#include <cstdio>

#include "trireme/train/loss_sum.h"

namespace trireme::train {
namespace {

constexpr int kFirstTrial = 2;  // the first step allocates and starts threads
constexpr int kTrials = 3;      // of each way

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

OverlapChoice::OverlapChoice(const std::string& mode, comm::Communicator& world)
    : world_(world), flag_(std::make_shared<bool>(mode == "on")), is_decided_(mode != "auto") {}

void OverlapChoice::begin_step() {
  ++step_;
  if (is_decided_) return;
  *flag_ = step_ >= kFirstTrial && (step_ - kFirstTrial) % 2 == 1;
  start_ = Clock::now();
}

std::optional<std::string> OverlapChoice::end_step() {
  if (is_decided_ || step_ < kFirstTrial) return std::nullopt;
  const double mine = std::chrono::duration<double>(Clock::now() - start_).count();
  const std::vector<double> all = gather(world_, {mine});
  seconds_[*flag_ ? 1 : 0].push_back(*std::ranges::max_element(all));
  if (step_ + 1 < kFirstTrial + 2 * kTrials) return std::nullopt;
  const double off = median(seconds_[0]), on = median(seconds_[1]);
  is_decided_ = true;
  *flag_ = on < off;
  char line[128];
  std::snprintf(line, sizeof(line),
                "asynchronous tensor parallel %s: %.1f ms a step with it, %.1f without",
                *flag_ ? "on" : "off", 1e3 * on, 1e3 * off);
  return line;
}

}  // namespace trireme::train
