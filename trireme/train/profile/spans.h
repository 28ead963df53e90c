// One rank's work in the profiled steps, as spans of time, and sets of time with their arithmetic.
// profiler.h collects the spans, analysis.h evaluates them and profile_report.h shows them. Plain
// data; measures nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"

namespace trireme::train {

// Nanoseconds of a monotonic clock: the rank's own, or rank 0's after shift() has aligned it.
struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t length_ns() const { return end_ns > begin_ns ? end_ns - begin_ns : 0; }
  friend bool operator==(const Span&, const Span&) = default;
};

// The phases of a step, in order. docs/guide/profile.md defines them.
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

// From libtorch's profiler: an operator on the host, or a kernel on a GPU.
struct OperatorSpan {
  std::string name;  // libtorch's name: "aten::mm"
  Span time;
  int thread = 0;     // on the host, 0 for the one that runs the steps; on a GPU, its stream
  int device = -1;    // GPU; -1: the host
  int64_t flops = 0;  // 0: unknown
};

struct GroupOfRanks {
  std::string name;
  std::vector<int> world_ranks;
  friend bool operator==(const GroupOfRanks&, const GroupOfRanks&) = default;
};

// A communicator's call. It runs from time.begin_ns, when this rank was ready, to time.end_ns.
struct CallSpan {
  std::string operation;  // "all_reduce"
  int group = -1;         // index into RankProfile::groups; -1: unknown
  uint64_t sequence = 0;  // among the group's collectives
  int64_t bytes = 0;      // of this rank's tensor
  int64_t issued_ns = 0;  // before time.begin_ns if a background call had to queue
  Span time;
  bool is_background = false;  // not in the thread that runs the steps
  bool is_point_to_point = false;
  int peer = -1;  // rank in the group at the other end of a send or recv, or the root
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
  // For a pipeline: each step's run of its schedule, and this rank's place on the axis.
  std::vector<parallel::PipelineProfile> pipeline_runs{};
  int pipeline_rank = 0;
  uint64_t num_lost_calls = 0;  // calls that the flight recorder's ring had overwritten
};

// Moves every time by `nanoseconds`.
void shift(RankProfile& profile, int64_t nanoseconds);

// For sending to rank 0. Only this version can read the bytes.
std::string to_bytes(const RankProfile& profile);
// Throws: InternalError when they were not made by to_bytes()
RankProfile rank_profile_of(std::string_view bytes);

// Sets of time and their arithmetic. The intersection of two sets shows how much of one hides
// behind the other.
// Disjoint spans in order of time, none empty. A value: cheap to move, safe to share.
class TimeSet {
 public:
  TimeSet() = default;
  // From spans in any order, which may overlap, touch or be empty.
  explicit TimeSet(std::vector<Span> spans);

  const std::vector<Span>& spans() const { return spans_; }
  int64_t total_ns() const;

  friend TimeSet operator|(const TimeSet& a, const TimeSet& b);  // in either
  friend TimeSet operator&(const TimeSet& a, const TimeSet& b);  // in both
  friend TimeSet operator-(const TimeSet& a, const TimeSet& b);  // in a but not in b
  friend bool operator==(const TimeSet&, const TimeSet&) = default;

 private:
  std::vector<Span> spans_;
};

}  // namespace trireme::train
