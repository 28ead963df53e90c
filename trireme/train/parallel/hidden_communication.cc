#include "trireme/train/parallel/hidden_communication.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/train/profile/time_set.h"

namespace trireme::train::inline internal {
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

}  // namespace trireme::train::inline internal
