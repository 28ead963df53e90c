#include "trireme/train/parallel/overlap_choice.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train::inline internal {
namespace {

constexpr int kFirstTrial = 2;  // the first step allocates and starts threads
constexpr int kTrials = 3;      // for each way

// The numbers that each rank sends in a measured step.
constexpr size_t kNumbers = 3;  // seconds of the step, CommunicationTimes so far

}  // namespace

OverlapChoice::OverlapChoice(AsyncTensor mode, comm::Communicator& world,
                             HiddenCommunication hidden, Clock clock)
    : world_(world),
      hidden_(std::move(hidden)),
      flag_(std::make_shared<bool>(mode == AsyncTensor::kOn)),
      is_decided_(mode != AsyncTensor::kAuto),
      clock_(std::move(clock)) {
  if (mode == AsyncTensor::kAuto) last_step_ = kFirstTrial + 2 * kTrials - 1;
  if (mode == AsyncTensor::kOn) last_step_ = kFirstTrial + kTrials - 1;
}

bool OverlapChoice::measures() const { return step_ >= kFirstTrial && step_ <= last_step_; }

void OverlapChoice::begin_step() {
  ++step_;
  if (!is_decided_) *flag_ = step_ >= kFirstTrial && (step_ - kFirstTrial) % 2 == 1;
  if (measures() && *flag_) hidden_.begin();
  start_ns_ = clock_();
}

std::optional<std::string> OverlapChoice::end_step(const LayerTimes& layers) {
  if (!measures()) return std::nullopt;
  const double mine = 1e-9 * static_cast<double>(clock_() - start_ns_);
  if (*flag_) hidden_.end(layers.window, layers.waiting);
  const CommunicationTimes& times = hidden_.times();
  const std::vector<double> all = gather(world_, {mine, times.under_way, times.waiting});
  double slowest = 0;
  for (size_t at = 0; at < all.size(); at += kNumbers) slowest = std::max(slowest, all[at]);
  seconds_[*flag_ ? 1 : 0].push_back(slowest);
  if (step_ < last_step_) return std::nullopt;
  const std::string hides = describe_hidden(all);
  if (is_decided_) {
    if (hides.empty()) return std::nullopt;
    return concat("asynchronous tensor parallel on: ", hides);
  }
  const double off = median(seconds_[0]), on = median(seconds_[1]);
  is_decided_ = true;
  *flag_ = on < off;
  char line[128];
  std::snprintf(line, sizeof(line),
                "decided asynchronous tensor parallel %s: %.1f ms per step with it, %.1f without",
                *flag_ ? "on" : "off", 1e3 * on, 1e3 * off);
  return hides.empty() ? std::string(line) : concat(line, "; ", hides);
}

// Empty if it is unknown.
std::string OverlapChoice::describe_hidden(const std::vector<double>& all) const {
  std::vector<CommunicationTimes> ranks;
  for (size_t at = 0; at < all.size(); at += kNumbers) ranks.push_back({all[at + 1], all[at + 2]});
  const std::optional<double> share = hidden_share(ranks);
  if (!share) return "";
  char text[64];
  std::snprintf(text, sizeof(text), "it hides %.0f %% of its communication", 100 * *share);
  return text;
}

}  // namespace trireme::train::inline internal
