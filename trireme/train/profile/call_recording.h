// The communicators' calls as spans, read from this rank's flight recorder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Thread safety: none. Changes nothing in the recorder.
class CallRecording {
 public:
  // In the thread that runs the steps. Of calls issued from now on. A null recorder: there are
  // none.
  explicit CallRecording(std::shared_ptr<const comm::Recorder> recorder);

  // Takes what the ring holds, before later calls take its place: between steps.
  void collect();
  // The calls that have ended, their groups and how many were lost, into `profile`.
  void move_to(RankProfile& profile);

 private:
  std::shared_ptr<const comm::Recorder> recorder_;
  uint32_t steps_thread_;
  uint64_t next_number_ = 0;  // the calls before it are collected, open_ or lost
  std::vector<uint64_t> open_;
  std::map<uint64_t, comm::Record> ended_;  // by number
  std::vector<comm::RecordedGroup> groups_;
  std::chrono::nanoseconds wall_offset_{};
  uint64_t num_lost_ = 0;
};

// Bytes of a record's tensor; 0 when the record does not say.
int64_t bytes_of(const comm::Record& record);

}  // namespace trireme::train
