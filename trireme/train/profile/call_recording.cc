#include "trireme/train/profile/call_recording.h"

#include <algorithm>
#include <utility>

#include <c10/core/ScalarType.h>

namespace trireme::train::inline internal {
namespace {

bool has_ended(const comm::Record& record) { return record.state >= comm::CallState::kDone; }

}  // namespace

CallRecording::CallRecording(std::shared_ptr<const comm::Recorder> recorder)
    : recorder_(std::move(recorder)), steps_thread_(comm::own_thread_id()) {
  if (recorder_ == nullptr) return;
  const comm::Ring ring = recorder_->snapshot();
  if (!ring.records.empty()) next_number_ = ring.records.back().number + 1;
}

void CallRecording::collect() {
  if (recorder_ == nullptr) return;
  comm::Ring ring = recorder_->snapshot();
  groups_ = std::move(ring.groups);
  wall_offset_ = ring.wall_offset;
  // If the ring still holds an earlier call, it has lost none since. Gaps in the numbers prove
  // nothing.
  const bool keeps_all = std::ranges::any_of(ring.records, [this](const comm::Record& record) {
    return record.number < next_number_ && has_ended(record);
  });
  if (!keeps_all && !ring.records.empty()) {
    num_lost_ += std::max(ring.records.front().number, next_number_) - next_number_;
  }
  std::vector<uint64_t> open;
  for (comm::Record& record : ring.records) {
    const uint64_t number = record.number;
    const bool is_new = number >= next_number_;
    if (!is_new && std::ranges::find(open_, number) == open_.end()) continue;
    if (is_new) next_number_ = number + 1;
    if (has_ended(record)) {
      ended_.emplace(number, std::move(record));
    } else {
      open.push_back(number);
    }
  }
  open_ = std::move(open);
}

void CallRecording::move_to(RankProfile& profile) {
  collect();
  const auto monotonic = [this](comm::WallTime time) {
    return (time.time_since_epoch() - wall_offset_).count();
  };
  for (comm::RecordedGroup& group : groups_) {
    profile.groups.push_back({std::move(group.name), std::move(group.world_ranks)});
  }
  for (auto& [number, record] : ended_) {
    profile.calls.push_back(
        {.operation = std::move(record.operation),
         .group = record.group,
         .sequence = record.sequence,
         .bytes = bytes_of(record),
         .issued_ns = monotonic(record.issued),
         .time = {monotonic(record.started), monotonic(record.ended)},
         // A group made of groups makes its calls on its own thread.
         .is_background = record.is_background || record.thread != steps_thread_,
         .is_point_to_point = record.is_point_to_point,
         .peer = record.peer,
         .tag = record.tag});
  }
  profile.num_lost_calls = num_lost_;
  ended_.clear();
}

int64_t bytes_of(const comm::Record& record) {
  if (record.dtype < 0) return 0;
  const auto item =
      static_cast<int64_t>(c10::elementSize(static_cast<c10::ScalarType>(record.dtype)));
  if (record.elements >= 0) return record.elements * item;
  if (record.num_dims > std::ssize(record.shape)) return 0;
  int64_t count = 1;
  for (const int64_t length : record.shape) count *= length;
  return count * item;
}

}  // namespace trireme::train::inline internal
