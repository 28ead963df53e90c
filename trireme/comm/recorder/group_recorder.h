// Checks one group's calls and records them in its rank's flight recorder. Every transport does so
// here: a program is refused the same calls, and leaves the same records, on all of them.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/GradMode.h>

#include "trireme/comm/background_work.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"

namespace trireme::comm {

// Runs `function`. An exception ends the call of `entry` as failed.
template <typename Function>
decltype(auto) run_or_fail(const Recorder::Entry& entry, Function&& function) {
  try {
    return function();
  } catch (...) {
    entry.finish(false);
    throw;
  }
}

// Runs `function` and records in `entry` how it ended.
template <typename Function>
auto run_recorded(const Recorder::Entry& entry, Function&& function) {
  if constexpr (std::is_void_v<decltype(function())>) {
    run_or_fail(entry, function);
    entry.finish(true);
  } else {
    auto result = run_or_fail(entry, function);
    entry.finish(true);
    return result;
  }
}

// Holds the recorder. Copies record in the same group. Thread safety: that of Recorder.
class GroupRecorder {
 public:
  GroupRecorder() = default;  // records nothing
  // Adds a group of `size` ranks to `recorder`; null: records nothing. world_ranks: the group's
  // members; empty: 0, 1, ...
  GroupRecorder(std::shared_ptr<Recorder> recorder, const std::string& name, int size,
                std::vector<int> world_ranks = {});

  // Adds the sub-group of `members`, given as ranks of this group.
  GroupRecorder split(const std::string& name, const std::vector<int>& members) const;
  // Null when nothing is recorded.
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  // The group's members; empty when nothing is recorded.
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // Records that a collective begins or is queued. Keeps the shape and dtype of `tensor`;
  // undefined: none.
  Recorder::Entry issue(const Call& call, const at::Tensor& tensor, const Options& options) const;
  // Records that a send to `peer` or a recv from it begins, of a tensor of `sizes`.
  Recorder::Entry issue_message(const Call& call, int peer, at::IntArrayRef sizes,
                                const Options& options) const;
  // Counts in the recorder's WaitSums that this rank has waited for `peer`.
  void add_wait(const std::string& name, int peer, std::chrono::nanoseconds waited) const;
  // Runs `meet`, in which the group's ranks find each other, as the group's first call, "join".
  template <typename Meet>
  auto join(Meet&& meet) const {
    const auto entry =
        recorder_ ? recorder_->issue(group_, {.operation = "join"}) : Recorder::Entry();
    return run_recorded(entry, meet);
  }

 private:
  std::shared_ptr<Recorder> recorder_;
  int group_ = -1;
  std::vector<int> world_ranks_;
};

// The base of our transports: checks a call, records it, and hands it to the transport.
class RecordedCommunicator : public Communicator {
 public:
  // Records all later calls in `recorder`. Call it before the first call that others may need to
  // see.
  void record_in(GroupRecorder recorder) { recorder_ = std::move(recorder); }
  WorkPtr run(Collective call) final;
  void add_wait(int peer, std::chrono::nanoseconds waited) final {
    recorder_.add_wait(name(), peer, waited);
  }

 protected:
  // device: of all tensors.
  explicit RecordedCommunicator(c10::DeviceType device = c10::DeviceType::CPU)
      : device_type_(device) {}

  // Runs a checked call, or has it run in the background, and ends its entry.
  virtual WorkPtr start(Collective&& call, const Recorder::Entry& entry) = 0;
  // Throws: ConfigError when the transport does not reduce such tensors
  virtual void check_reduction(const Call& call) const;
  // Whether start() takes recvs that borrow.
  virtual bool lends() const { return false; }

  // Runs carry_out(call) and records how it ends, after the group's earlier collectives: here, or
  // in the background on `progress`.
  template <typename CarryOut>
  static WorkPtr run_in_order(Progress& progress, Collective&& call, const Recorder::Entry& entry,
                              CarryOut carry_out) {
    // Communication is never recorded by autograd, whatever thread it runs on.
    if (!call.options.background) {
      return progress.run([&] {
        const c10::NoGradGuard no_grad;
        run_recorded(entry, [&] { carry_out(call); });
      });
    }
    return progress.run_in_background([call = std::move(call), entry, carry_out] {
      const c10::NoGradGuard no_grad;
      entry.start();
      run_recorded(entry, [&] { carry_out(call); });
    });
  }

  GroupRecorder recorder_;

 private:
  const c10::DeviceType device_type_;
};

}  // namespace trireme::comm
