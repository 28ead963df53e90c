#include "trireme/train/profile/operator_recording.h"

#include <chrono>
#include <exception>
#include <set>

#include <ATen/Context.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "trireme/base/clock.h"

namespace trireme::train::inline internal {
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
    OperatorSpan span{.name = event.name(),
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

}  // namespace trireme::train::inline internal
