// Turns the communicators' calls into spans, from this rank's flight recorder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train::inline internal {

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

}  // namespace trireme::train::inline internal
