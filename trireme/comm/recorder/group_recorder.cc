#include "trireme/comm/recorder/group_recorder.h"

#include <numeric>

#include "trireme/comm/loan.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

RecordedCall recorded(const Call& call, at::IntArrayRef sizes, int dtype, const Options& options) {
  return {.operation = call.operation,
          .shape = {sizes.data(), sizes.size()},
          .elements = call.elements,
          .dtype = dtype,
          .reduce_op = call.reduce_op,
          .peer = call.root,
          .tag = options.tag,
          .is_background = options.background};
}

}  // namespace

GroupRecorder::GroupRecorder(std::shared_ptr<Recorder> recorder, const std::string& name, int size,
                             std::vector<int> world_ranks)
    : recorder_(std::move(recorder)), world_ranks_(std::move(world_ranks)) {
  if (recorder_ == nullptr) return;
  if (world_ranks_.empty()) {
    world_ranks_.resize(size);
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
  }
  group_ = recorder_->add_group(name, world_ranks_);
}

GroupRecorder GroupRecorder::split(const std::string& name, const std::vector<int>& members) const {
  if (recorder_ == nullptr) return {};
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(world_ranks_.at(member));
  return {recorder_, name, static_cast<int>(members.size()), std::move(world_ranks)};
}

void GroupRecorder::add_wait(const std::string& name, int peer,
                             std::chrono::nanoseconds waited) const {
  if (recorder_) recorder_->waits()->add(name, world_ranks_.at(static_cast<size_t>(peer)), waited);
}

Recorder::Entry GroupRecorder::issue(const Call& call, const at::Tensor& tensor,
                                     const Options& options) const {
  if (recorder_ == nullptr) return {};
  return recorder_->issue(group_, tensor.defined()
                                      ? recorded(call, tensor.sizes(), call.dtype, options)
                                      : recorded(call, {}, -1, options));
}

Recorder::Entry GroupRecorder::issue_message(const Call& call, int peer, at::IntArrayRef sizes,
                                             const Options& options) const {
  if (recorder_ == nullptr) return {};
  RecordedCall kept = recorded(call, sizes, call.dtype, options);
  kept.peer = peer;
  kept.is_point_to_point = true;
  const auto entry = recorder_->issue(group_, kept);
  // Messages wait for no earlier call of the group.
  if (options.background) entry.start();
  return entry;
}

void RecordedCommunicator::check_reduction(const Call& call) const {
  check_reducible(static_cast<c10::ScalarType>(call.dtype), static_cast<ReduceOp>(call.reduce_op));
}

WorkPtr RecordedCommunicator::run(Collective call) {
  // Before it is recorded: a call that is refused was never made, and would shift the places by
  // which the ranks' calls are joined.
  check(call, device_type_);
  if (call.compared.reduce_op >= 0) check_reduction(call.compared);
  if (!call.is_message()) {
    const auto entry = recorder_.issue(call.compared, call.first_tensor(), call.options);
    return start(std::move(call), entry);
  }
  // After the check, which names a borrow as one.
  if (!lends()) receive_copy(call);
  const at::IntArrayRef sizes = call.borrowed ? call.borrowed->sizes : call.data.sizes();
  const auto entry = recorder_.issue_message(call.compared, call.peer, sizes, call.options);
  return start(std::move(call), entry);
}

}  // namespace trireme::comm
