// Records one group's calls in its rank's flight recorder. Every transport records through it, so a
// program leaves the same records on all of them.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/call.h"
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

  // Records that a collective begins or is queued. Keeps the shape and dtype of `tensor`;
  // undefined: none.
  Recorder::Entry issue(const Call& call, const at::Tensor& tensor, const Options& options) const;
  // Records that a send to `peer` or a recv from it begins, of a tensor of `sizes`.
  Recorder::Entry issue_message(const Call& call, int peer, at::IntArrayRef sizes,
                                const Options& options) const;
  // Like issue(). Returns a function that runs `operation` and records when it begins and how it
  // ends.
  template <typename Operation>
  auto issue(const Call& call, const at::Tensor& tensor, const Options& options,
             Operation operation) const {
    return [entry = issue(call, tensor, options), is_background = options.background,
            operation = std::move(operation)] {
      if (is_background) entry.start();
      run_recorded(entry, operation);
    };
  }
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

// A Communicator whose calls are recorded. All our transports are.
class RecordedCommunicator : public Communicator {
 public:
  // Records all later calls in `recorder`. Call it before the first call that others may need to
  // see.
  void record_in(GroupRecorder recorder) { recorder_ = std::move(recorder); }

 protected:
  GroupRecorder recorder_;
};

}  // namespace trireme::comm
