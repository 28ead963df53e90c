// Records the spans of a profile: the communicators' calls from the flight recorder, libtorch's
// operators, and the offsets of the ranks' clocks, by which the spans of several ranks are
// compared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Turns the communicators' calls into spans, from this rank's flight recorder.
// Not thread safe. Changes nothing in the recorder.
class CallRecording {
 public:
  // Records calls issued from now on. Make it in the thread that runs the steps. With a null
  // recorder there are no calls.
  explicit CallRecording(std::shared_ptr<const comm::Recorder> recorder);

  // Reads the ring before later calls overwrite it. Call it between steps.
  void collect();
  // Moves the calls that have ended, their groups and the number of lost calls into `profile`.
  void move_to(RankProfile& profile);

 private:
  std::shared_ptr<const comm::Recorder> recorder_;
  uint32_t steps_thread_;
  uint64_t next_number_ = 0;  // calls before it are collected, open_ or lost
  std::vector<uint64_t> open_;
  std::map<uint64_t, comm::Record> ended_;  // by number
  std::vector<comm::RecordedGroup> groups_;
  std::chrono::nanoseconds wall_offset_{};
  uint64_t num_lost_ = 0;
};

// Bytes of a record's tensor; 0 if the record does not say.
int64_t bytes_of(const comm::Record& record);

// Records libtorch's operators and GPU kernels as spans, by switching libtorch's profiler (Kineto)
// on and off. Does not see other threads and ranks of the process.
// One at a time per process. Thread safety: call start() and stop() in the thread whose operators
// are recorded. Of other threads, only those that autograd runs for it are seen.
class OperatorRecording {
 public:
  OperatorRecording() = default;
  ~OperatorRecording();  // stops and discards
  OperatorRecording(const OperatorRecording&) = delete;
  OperatorRecording& operator=(const OperatorRecording&) = delete;

  // Throws: c10::Error when the process is already being profiled
  void start();
  bool is_running() const { return is_running_; }
  // Everything since start(), on this process's monotonic clock.
  std::vector<OperatorSpan> stop();

 private:
  bool is_running_ = false;
};

// The offsets of the ranks' monotonic clocks from rank 0's. Ranks of one host share a clock.
// Between hosts the offset is measured by round trips.

struct LocalClock {
  std::string host;                 // a boot id; equal on ranks that share the clock
  std::function<int64_t()> now_ns;  // monotonic
};

// On rank 0: for each rank, its clock minus rank 0's in nanoseconds. The error is at most half of
// the shortest of 8 round trips. Empty on other ranks.
// Comm:       every rank's host name to all; 16 messages of 8 bytes for each host but rank 0's
// Collective: every rank of `world`
std::vector<int64_t> clock_offsets(comm::Communicator& world, const LocalClock& clock);

}  // namespace trireme::train
