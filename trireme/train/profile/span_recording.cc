#include "trireme/train/profile/span_recording.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
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

namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

// Kineto's times are wall-clock times.
int64_t wall_minus_monotonic_ns() {
  const int64_t before = monotonic_ns();
  const int64_t wall =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  return wall - (before + monotonic_ns()) / 2;
}

// The backward of a function that is not libtorch's, such as
// "torch::autograd::CppNode<trireme::model::(anonymous namespace)::SwigluFunction>", reads "Swiglu
// backward".
std::string operator_name(const std::string& name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<", kFunction = "Function";
  const size_t begin = name.find(kNode);
  if (begin == name.npos || !name.ends_with('>')) return name;
  std::string_view type = std::string_view(name).substr(begin + kNode.size());
  type.remove_suffix(1);
  type = type.substr(0, type.find('<'));
  const size_t scope = type.rfind("::");
  if (scope != type.npos) type.remove_prefix(scope + 2);
  if (type.ends_with(kFunction)) type.remove_suffix(kFunction.size());
  return concat(std::string_view(name).substr(0, begin), type, " backward");
}

}  // namespace

OperatorRecording::~OperatorRecording() {
  try {
    if (is_running_) stop();
  } catch (const std::exception&) {
    // Its recording is not wanted.
  }
}

void OperatorRecording::start() {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (at::hasCUDA()) activities.insert(ActivityType::CUDA);
  // Flops are derived from shapes.
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/true,
                              /*profile_memory=*/false, /*with_stack=*/false, /*with_flops=*/true);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  is_running_ = true;
}

std::vector<OperatorSpan> OperatorRecording::stop() {
  is_running_ = false;
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  const int64_t offset_ns = wall_minus_monotonic_ns();
  const uint64_t steps_thread = at::RecordFunction::currentThreadId();
  std::vector<OperatorSpan> spans;
  for (const kineto::KinetoEvent& event : result->events()) {
    // Asynchronous events (c10d's messages) end in other threads and do not nest.
    if (event.isHiddenEvent() || event.isAsync()) continue;
    const bool is_host = event.deviceType() == c10::DeviceType::CPU;
    const auto begin_ns = static_cast<int64_t>(event.startNs()) - offset_ns;
    OperatorSpan span{.name = operator_name(event.name()),
                      .time = {begin_ns, begin_ns + static_cast<int64_t>(event.durationNs())},
                      .flops = static_cast<int64_t>(event.flops())};
    if (!is_host) {
      span.device = event.deviceIndex();
      span.thread = static_cast<int>(event.deviceResourceId());
    } else if (event.startThreadId() != steps_thread) {
      span.thread = static_cast<int>(event.startThreadId());
    }
    spans.push_back(std::move(span));
  }
  return spans;
}

namespace {

constexpr int kRoundTrips = 8;
constexpr comm::Options kMessage{.tag = 0x70f};

// The clock of `rank` minus this one. Assumes that the answer was given halfway through the round
// trip.
int64_t ask(comm::Communicator& world, const LocalClock& clock, int rank) {
  at::Tensor message = at::zeros({1}, at::kLong);
  int64_t shortest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    const int64_t sent = clock.now_ns();
    world.send(message, rank, kMessage)->wait();
    world.recv(message, rank, kMessage)->wait();
    const int64_t received = clock.now_ns();
    if (received - sent >= shortest) continue;
    shortest = received - sent;
    offset = message.item<int64_t>() - (sent + shortest / 2);
  }
  return offset;
}

void answer(comm::Communicator& world, const LocalClock& clock) {
  at::Tensor message = at::zeros({1}, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    world.recv(message, 0, kMessage)->wait();
    message.fill_(clock.now_ns());
    world.send(message, 0, kMessage)->wait();
  }
}

}  // namespace

std::vector<int64_t> clock_offsets(comm::Communicator& world, const LocalClock& clock) {
  const std::vector<std::string> hosts = comm::all_gather_strings(world, clock.host);
  std::vector<int64_t> offsets;
  for (int rank = 0; rank < world.size(); ++rank) {
    // The first rank of a host measures for all its ranks.
    const auto first = static_cast<int>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    const bool measures = first == rank && first != 0;
    if (measures && world.rank() == rank) answer(world, clock);
    if (world.rank() != 0) continue;
    if (measures) {
      offsets.push_back(ask(world, clock, rank));
    } else {
      offsets.push_back(first == 0 ? 0 : offsets[first]);
    }
  }
  return offsets;
}

}  // namespace trireme::train
