// Rings for tests, written down instead of recorded: times are seconds after a start.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/ring.h"

namespace trireme::comm {

inline WallTime at_second(double seconds) {
  using std::chrono::nanoseconds;
  // 2026-01-02 03:04:05 UTC
  return WallTime(std::chrono::seconds(1767323045) +
                  nanoseconds(static_cast<int64_t>(seconds * 1e9)));
}

// One rank of a run of `world_size`, read at second 100.
class Observed {
 public:
  Observed(int rank, int world_size) {
    Ring& ring = observed_.ring;
    ring.rank = rank;
    ring.world_size = world_size;
    ring.job = "job";
    ring.host = "host";
    ring.process_id = 4000 + rank;
    ring.created = at_second(0);
    ring.now = at_second(100);
    std::vector<int> all;
    for (int other = 0; other < world_size; ++other) all.push_back(other);
    add_group("world", all);
  }

  // The group's index in this ring; "world" is 0.
  int add_group(const std::string& name, const std::vector<int>& world_ranks) {
    observed_.ring.groups.push_back({name, world_ranks});
    return static_cast<int>(observed_.ring.groups.size()) - 1;
  }

  // An fp32 [4, 8] collective that began at `started` and, unless negative, ended at `ended`.
  Record& call(const std::string& operation, double started, double ended = -1, int group = 0) {
    Record& record = append(group, operation, started, ended);
    record.sequence = ++observed_.ring.groups[group].num_collectives;
    record.shape = {4, 8};
    record.num_dims = 2;
    record.elements = 32;
    record.dtype = static_cast<int>(c10::ScalarType::Float);
    if (operation == "all_reduce") record.reduce_op = static_cast<int>(ReduceOp::kSum);
    return record;
  }
  // A send or recv with the group's rank `peer`.
  Record& message(const std::string& operation, int peer, int tag, double started,
                  double ended = -1) {
    Record& record = append(0, operation, started, ended);
    record.sequence = ++observed_.ring.groups[0].num_point_to_point;
    record.is_point_to_point = true;
    record.peer = peer;
    record.tag = tag;
    return record;
  }
  // The last call fails.
  Observed& fail(double ended) {
    observed_.ring.records.back().ended = at_second(ended);
    observed_.ring.records.back().state = CallState::kFailed;
    return *this;
  }
  Observed& close(double second) {
    observed_.ring.closed = at_second(second);
    observed_.process = ProcessState::kGone;
    return *this;
  }
  Observed& process(ProcessState state) {
    observed_.process = state;
    return *this;
  }
  Ring& ring() { return observed_.ring; }
  const ObservedRank& observed() const { return observed_; }

 private:
  Record& append(int group, const std::string& operation, double started, double ended) {
    Record record;
    record.number = observed_.ring.records.size();
    record.group = group;
    record.operation = operation;
    record.issued = record.started = at_second(started);
    record.state = ended < 0 ? CallState::kStarted : CallState::kDone;
    if (ended >= 0) record.ended = at_second(ended);
    observed_.ring.records.push_back(record);
    return observed_.ring.records.back();
  }

  ObservedRank observed_;
};

inline std::vector<ObservedRank> observed(const std::vector<Observed>& ranks) {
  std::vector<ObservedRank> all;
  for (const Observed& rank : ranks) all.push_back(rank.observed());
  return all;
}

// A run of `size` ranks that have all done one barrier in second 1.
inline std::vector<Observed> run_of(int size) {
  std::vector<Observed> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(rank, size);
    ranks.back().call("barrier", 1, 1.5);
  }
  return ranks;
}

}  // namespace trireme::comm
