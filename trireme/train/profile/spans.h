// What one rank did in the profiled steps, as spans of time: what profiler.h collects, analysis.h
// reads and trace.h draws. Plain data; measures nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"

namespace trireme::train {

// Nanoseconds of a monotonic clock: the rank's own, and rank 0's once shift() has aligned it.
struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t length_ns() const { return end_ns > begin_ns ? end_ns - begin_ns : 0; }
  friend bool operator==(const Span&, const Span&) = default;
};

// What a step consists of, in order; docs/profile.md says what each holds.
enum class Phase { kData, kForwardBackward, kNorm, kOptimizer, kExchange };
inline constexpr int kNumPhases = 5;
// "data", "forward_backward", ...
const char* name_of(Phase phase);

struct StepSpan {
  int64_t step = 0;
  Span time;
};

struct PhaseSpan {
  Phase phase = Phase::kData;
  Span time;
};

// Of libtorch's profiler: an operator of the host, or a kernel of a GPU.
struct OperatorSpan {
  std::string name;  // as libtorch has it: "aten::mm"
  Span time;
  int thread = 0;     // of the host, 0 for the one that runs the steps; of a GPU, its stream
  int device = -1;    // GPU; -1: the host
  int64_t flops = 0;  // 0: not known
};

struct GroupOfRanks {
  std::string name;
  std::vector<int> world_ranks;
  friend bool operator==(const GroupOfRanks&, const GroupOfRanks&) = default;
};

// A call of a communicator. It runs from time.begin_ns, when this rank was there, to time.end_ns.
struct CallSpan {
  std::string operation;  // "all_reduce"
  int group = -1;         // index into RankProfile::groups; -1: not known
  uint64_t sequence = 0;  // among the group's collectives
  int64_t bytes = 0;      // of this rank's tensor
  int64_t issued_ns = 0;  // earlier than time.begin_ns when a background call had to queue
  Span time;
  bool is_background = false;  // not in the thread that runs the steps
  bool is_point_to_point = false;
  int peer = -1;  // the group's rank at the other end of a send or recv, or the root
  int tag = 0;    // of a send or recv
};

struct RankProfile {
  int rank = 0;
  std::string host{};
  std::vector<StepSpan> steps{};
  std::vector<PhaseSpan> phases{};
  std::vector<OperatorSpan> operators{};
  std::vector<GroupOfRanks> groups{};
  std::vector<CallSpan> calls{};
  // Of a pipeline: each step's run of its schedule, and where on the axis this rank is.
  std::vector<parallel::PipelineProfile> pipeline_runs{};
  int pipeline_rank = 0;
  uint64_t num_lost_calls = 0;  // that the flight recorder's ring had forgotten
};

// Moves every time by `nanoseconds`.
void shift(RankProfile& profile, int64_t nanoseconds);

// For the way to rank 0. The bytes are those of this version alone.
std::string to_bytes(const RankProfile& profile);
// Throws: InternalError when they are none of to_bytes()
RankProfile rank_profile_of(std::string_view bytes);

}  // namespace trireme::train
