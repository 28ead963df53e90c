#include "trireme/train/parallel/overlap_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {
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
  const std::string line =
      format("decided asynchronous tensor parallel %s: %.1f ms per step with it, %.1f without",
             *flag_ ? "on" : "off", 1e3 * on, 1e3 * off);
  return hides.empty() ? line : concat(line, "; ", hides);
}

// Empty if it is unknown.
std::string OverlapChoice::describe_hidden(const std::vector<double>& all) const {
  std::vector<CommunicationTimes> ranks;
  for (size_t at = 0; at < all.size(); at += kNumbers) ranks.push_back({all[at + 1], all[at + 2]});
  const std::optional<double> share = hidden_share(ranks);
  if (!share) return "";
  return format("it hides %.0f %% of its communication", 100 * *share);
}

namespace {

constexpr double kNotKnown = -1;

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

}  // namespace

std::optional<double> hidden_share(std::span<const CommunicationTimes> ranks) {
  double under_way = 0, hidden = 0;
  for (const CommunicationTimes& rank : ranks) {
    if (rank.under_way < 0) return std::nullopt;
    under_way += rank.under_way;
    hidden += std::max(0.0, rank.under_way - rank.waiting);
  }
  if (under_way <= 0) return std::nullopt;
  return hidden / under_way;
}

// Calls that overlap, because one waits for the other in the group's queue, count once.
double seconds_under_way(const RankProfile& calls, const Span& window, const std::string& name,
                         int size) {
  if (calls.num_lost_calls > 0) return kNotKnown;
  // It is not recorded if the recorder's table of groups was full.
  const bool is_recorded = std::ranges::any_of(calls.groups, [&](const GroupOfRanks& group) {
    return group.name == name && std::ssize(group.world_ranks) == size;
  });
  if (!is_recorded) return kNotKnown;
  std::vector<Span> spans;
  for (const CallSpan& call : calls.calls) {
    if (call.group < 0) continue;
    const GroupOfRanks& group = calls.groups.at(static_cast<size_t>(call.group));
    if (group.name == name) spans.push_back({call.issued_ns, call.time.end_ns});
  }
  return seconds((TimeSet(std::move(spans)) & TimeSet({window})).total_ns());
}

HiddenCommunication::HiddenCommunication(std::shared_ptr<const comm::Recorder> recorder,
                                         std::string name, int size)
    : recorder_(std::move(recorder)), name_(std::move(name)), size_(size) {
  if (recorder_ == nullptr) times_.under_way = kNotKnown;
}

void HiddenCommunication::begin() {
  if (times_.under_way >= 0) calls_.emplace(recorder_);
}

void HiddenCommunication::end(const Span& window, std::chrono::nanoseconds waiting) {
  if (!calls_ || times_.under_way < 0) return;
  RankProfile recorded;
  calls_->move_to(recorded);
  calls_.reset();
  const double added = seconds_under_way(recorded, window, name_, size_);
  times_.under_way = added < 0 ? kNotKnown : times_.under_way + added;
  times_.waiting += seconds(waiting.count());
}

}  // namespace trireme::train
