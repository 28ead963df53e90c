// The part of C10dBackend that reduces nothing: issuing calls, all-to-all, gather, scatter, point
// to point, barriers, and the life of the group.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/c10d_arguments.h"
#include "trireme/comm/c10d/c10d_backend.h"
#include "trireme/comm/c10d/gloo_behaviour.h"

namespace trireme::comm {

// Two locks order the calls, one for collectives and one for messages: calls of each kind are
// issued in one order, and a collective does not hold up messages. state_ is held only for a
// moment. Works are kept in pending_ until they are done, since Python may drop its reference at
// once and peers still expect the call to run. They are freed without the locks, because freeing a
// tensor may need Python's interpreter lock, which a caller of ours may hold. An error stays and is
// thrown by every later call: a group is dead after it.

namespace {

constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 10);

}  // namespace

C10dBackend::C10dBackend(std::unique_ptr<Communicator> group, std::chrono::milliseconds timeout)
    : Backend(group->rank(), group->size()),
      group_(std::move(group)),
      watcher_(std::make_shared<C10dWatcher>()),
      timeout_(timeout),
      group_name_(group_->name()) {
  init();
}

C10dBackend::~C10dBackend() = default;

comm::Options C10dBackend::options_of(std::chrono::milliseconds timeout, bool is_async) const {
  const std::lock_guard lock(state_);
  comm::Options options;
  // A deadline beyond the clock's range would count as passed.
  options.timeout = std::min(timeout.count() > 0 ? timeout : timeout_, kLongest);
  options.background = is_async;
  return options;
}

uint64_t C10dBackend::admit(const char* title, bool is_collective) {
  // group_ changes only under both locks of calls, of which the caller holds one.
  TRIREME_CHECK(group_ != nullptr, title, ": group ", group_name_,
                " has been shut down; make a new one with init_process_group or new_group");
  const std::lock_guard lock(state_);
  // The error that killed the group names the cause; a further call would only fail as a
  // consequence.
  if (error_ != nullptr) std::rethrow_exception(error_);
  return is_collective ? ++sequence_ : 0;
}

void C10dBackend::run_and_keep_error(const std::function<void()>& operation) {
  try {
    as_c10d_errors(operation);
  } catch (const c10::DistBackendError&) {
    const std::lock_guard lock(state_);
    error_ = std::current_exception();
    throw;
  }
}

C10dBackend::Result C10dBackend::issue(const Call& call,
                                       const std::function<WorkPtr(Communicator&)>& operation) {
  std::vector<WorkPtr> finished;  // freed without the lock: freeing their tensors may need Python's
  const std::lock_guard issuing(call.is_collective ? collectives_ : messages_);
  C10dWork::Description description{call.type, call.title, call.inputs, call.outputs};
  // Numbered under the lock, so that the numbers have the order of the calls.
  description.sequence = admit(call.title, call.is_collective);
  auto result = c10::make_intrusive<C10dWork>(rank_, std::move(description), watcher_);
  run_and_keep_error([&] {
    WorkPtr work = operation(*group_);
    if (call.is_collective && call.is_async) {
      // A call is what lets go of those that are done, as no thread does.
      const auto rest =
          std::ranges::partition(pending_, [](const auto& old) { return !old->poll(); });
      finished.assign(rest.begin(), rest.end());
      pending_.erase(rest.begin(), rest.end());
      pending_.push_back(work);
    }
    result->start(std::move(work), call.epilogue);
  });
  return result;
}

C10dBackend::Result C10dBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllToAllOptions& opts) {
  check_sendable("alltoall", outputs);
  check_sendable("alltoall", inputs);
  Call call{c10d::OpType::ALLTOALL, "trireme:all_to_all", inputs, outputs};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.all_to_all(outputs, inputs, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& opts) {
  constexpr const char* kOperation = "all_to_all_single";
  check_sendable(kOperation, {output, input});
  TRIREME_CHECK(output.scalar_type() == input.scalar_type(), kOperation, ": got a ",
                c10::toString(input.scalar_type()), " input and a ",
                c10::toString(output.scalar_type()), " output; expected one dtype");
  const OutputBlocks to(output, block_elements(kOperation, output, size_, output_sizes));
  const Tensors from = input_blocks(input, block_elements(kOperation, input, size_, input_sizes));
  Call call{c10d::OpType::ALLTOALL_BASE, "trireme:all_to_all", {input}, {output}};
  call.is_async = opts.asyncOp;
  call.epilogue = to.commit;
  return issue(call, [&](Communicator& group) {
    return group.all_to_all(to.blocks, from, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::gather(TensorLists& outputs, Tensors& inputs,
                                        const c10d::GatherOptions& opts) {
  const at::Tensor input = only_tensor("gather", inputs);
  const auto root = static_cast<int>(opts.rootRank);
  TRIREME_CHECK(rank_ == root || outputs.empty(), "gather: got outputs on rank ", rank_,
                "; expected them on the root only, rank ", root);
  const Tensors list = rank_ == root ? only_list("gather", outputs, size_) : Tensors();
  Call call{c10d::OpType::GATHER, "trireme:gather", {input}, list};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.gather(list, input, root, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ScatterOptions& opts) {
  const at::Tensor output = only_tensor("scatter", outputs);
  const auto root = static_cast<int>(opts.rootRank);
  TRIREME_CHECK(rank_ == root || inputs.empty(), "scatter: got inputs on rank ", rank_,
                "; expected them on the root only, rank ", root);
  const Tensors list = rank_ == root ? only_list("scatter", inputs, size_) : Tensors();
  Call call{c10d::OpType::SCATTER, "trireme:scatter", list, {output}};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.scatter(output, list, root, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor data = only_tensor("send", tensors);
  // In the background always: c10d has one call for send and isend, and send waits for the work
  // itself.
  const Call call{c10d::OpType::SEND, "trireme:send", {data}, {}, {}, true, false};
  comm::Options options = options_of(c10d::kUnsetTimeout, true);
  options.tag = tag;
  return issue(call, [&](Communicator& group) { return group.send(data, peer, options); });
}

C10dBackend::Result C10dBackend::receive(c10d::OpType type, const Tensors& tensors, int peer,
                                         int tag) {
  const at::Tensor data = only_tensor("recv", tensors);
  const char* title = peer == kAnySource ? "trireme:recvAnySource" : "trireme:recv";
  const Call call{type, title, {data}, {data}, {}, true, false};
  comm::Options options = options_of(c10d::kUnsetTimeout, true);
  options.tag = tag;
  return issue(call, [&](Communicator& group) { return group.recv(data, peer, options); });
}

C10dBackend::Result C10dBackend::recv(Tensors& tensors, int peer, int tag) {
  return receive(c10d::OpType::RECV, tensors, peer, tag);
}

C10dBackend::Result C10dBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(c10d::OpType::RECVANYSOURCE, tensors, kAnySource, tag);
}

C10dBackend::Result C10dBackend::barrier(const c10d::BarrierOptions& opts) {
  Call call{c10d::OpType::BARRIER, "trireme:barrier", {}, {}};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.barrier(options_of(opts.timeout, opts.asyncOp));
  });
}

void C10dBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  RECORD_USER_SCOPE("trireme:monitored_barrier");
  std::shared_ptr<Communicator> group;
  {
    const std::lock_guard issuing(messages_);
    admit("monitored_barrier", true);
    // A copy: shutdown() may run meanwhile.
    group = group_;
  }
  std::chrono::milliseconds limit = opts.timeout;  // 0: every rank that is not here yet is late
  if (limit < std::chrono::milliseconds(0)) limit = options_of(limit, false).timeout;
  // Without the lock, for it waits for seconds and other messages must go on.
  run_and_keep_error([&] {
    comm::monitored_barrier(*group, messages_, std::min(limit, kLongest), wait_all_ranks);
  });
}

c10::intrusive_ptr<C10dBackend::Options> C10dBackend::getBackendOptions() {
  const std::lock_guard lock(state_);
  return c10::make_intrusive<Options>(kName, timeout_);
}

void C10dBackend::setTimeout(std::chrono::milliseconds timeout) {
  TRIREME_CHECK(timeout.count() > 0, "timeout of group ", group_name_, " is ", timeout.count(),
                " ms; expected more than 0");
  const std::lock_guard lock(state_);
  timeout_ = timeout;
}

uint64_t C10dBackend::getSequenceNumberForGroup() {
  const std::lock_guard lock(state_);
  return sequence_;
}

c10d::ErrorType C10dBackend::getError() {
  const std::lock_guard lock(state_);
  return error_ == nullptr ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}

at::Tensor C10dBackend::allocateTensor(long size, at::TensorOptions options) {
  TRIREME_CHECK(options.device().is_cpu(), "allocate_tensor: got device ", options.device(),
                "; the trireme backend allocates CPU tensors");
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  const std::shared_ptr<Communicator> group = current_group();
  // Without a group nobody reads it in place.
  if (group == nullptr) return at::empty({size}, options);
  try {
    return group->symmetric_empty({size}, dtype);
  } catch (const ConfigError&) {
    // The heap is full. Ordinary memory gives the same results more slowly.
    return at::empty({size}, options);
  }
}

bool C10dBackend::supportsTensorAlloc(c10::DeviceIndex index) { return index < 0; }

std::shared_ptr<Communicator> C10dBackend::current_group() const {
  const std::lock_guard lock(state_);
  return group_;
}

void C10dBackend::abort() {
  // Without the locks of the calls, one of which may be what hangs.
  const std::shared_ptr<Communicator> group = current_group();
  if (group != nullptr) group->abort("group " + group_name_ + " was aborted");
}

void C10dBackend::shutdown() {
  std::vector<WorkPtr> finished;
  std::shared_ptr<C10dWatcher> watcher;  // ends without the locks: callbacks may call collectives
  const std::scoped_lock issuing(collectives_, messages_);
  finished.swap(pending_);
  // Peers still expect results of works that their owners have dropped.
  for (const WorkPtr& work : finished) {
    try {
      work->wait();
    } catch (const Error&) {
      // Reported to its owner.
    }
  }
  std::shared_ptr<Communicator> group;
  {
    const std::lock_guard state(state_);
    group = std::move(group_);
  }
  // Without state_, which is held for a moment only.
  group.reset();
  watcher = std::move(watcher_);
}

}  // namespace trireme::comm
