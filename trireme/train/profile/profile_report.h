// The results of a profile: as numbers and in one line (shares of the step, operations, what bounds
// it, the pipeline), and as a trace to look at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"
#include "trireme/train/profile/analysis.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Summarises a pipeline from the profiled steps: its stages, the transfers between its ranks, and
// its bubble. Pure functions of what the ranks recorded.

struct PipelineSummary {
  parallel::Schedule schedule{};
  parallel::PipelineTimes times{};  // means over steps and pipelines
  // By rank of a pipeline: seconds per step in which data moved to it, with both its sender and
  // itself there, hidden or not. Empty if calls are not recorded.
  std::vector<double> moving{};
  int num_pipelines = 1;            // side by side, on parts of the batch
  parallel::Timeline last_run{};    // the last step in seconds, in world rank 0's pipeline
  std::filesystem::path drawing{};  // the file, once written
};

// ranks: in world-rank order and on one clock, each with one run per step. The first ranks at each
// place of the pipeline axis form one pipeline, the second ones the next, and so on.
PipelineSummary summarize_pipeline(const std::vector<RankProfile>& ranks,
                                   const parallel::Schedule& schedule);

// Draws the last step's run as an SVG file.
std::string draw(const PipelineSummary& summary);

// One rank, over all profiled steps. computing, data, exposed and idle add up to steps_ns.
struct RankTimes {
  int rank = 0;
  int64_t steps_ns = 0;
  int64_t computing_ns = 0;
  int64_t data_ns = 0;
  int64_t exposed_ns = 0;  // communication while nothing else ran
  int64_t late_ns = 0;     // of exposed: waiting for the last rank
  int64_t idle_ns = 0;
  int64_t communication_ns = 0;  // hidden or not
  int64_t hidden_ns = 0;         // of communication: while this rank computed
};

// Calls of one operation on one group, over all ranks.
struct CallTotals {
  std::string operation;
  std::string group;
  bool is_background = false;
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t time_ns = 0;
  int64_t wait_ns = 0;  // of time_ns: waiting for the last rank
  // Bytes of the tensors over the time after all ranks had come; 0 if that time is zero.
  double bytes_per_second() const;
};

// An operator or kernel, over all ranks.
struct OperatorTotals {
  std::string name;
  int64_t count = 0;
  int64_t own_ns = 0;
  int64_t flops = 0;
};

// The part to improve for a shorter step.
enum class Bound { kData, kCommunication, kOverhead, kMemory, kComputation };
const char* name_of(Bound bound);  // "data", "communication", ...

struct ProfileReport {
  int64_t first_step = 0;
  int64_t last_step = 0;
  std::vector<RankTimes> ranks;
  std::vector<CallTotals> calls;          // the longest first
  std::vector<OperatorTotals> operators;  // the longest first
  Bound bound = Bound::kComputation;
  std::string reason;           // the number that decided it, in words
  uint64_t num_lost_calls = 0;  // missing from the recorder's ring: communication is understated
  double slowdown = 0;          // profiled steps over those before, medians; 0: unknown
  std::filesystem::path trace;  // the file, once written
  std::optional<PipelineSummary> pipeline{};

  // The hidden share of all ranks' communication; 0 if there was none.
  double hidden_fraction() const;
};

// ranks: at least one, each with at least one step; states: states_of(ranks).
ProfileReport make_report(const std::vector<RankProfile>& ranks,
                          const std::vector<RankStates>& states);

// Writes a profile as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing display.
// The fields of its events: docs/guide/profile.md.
// The content of the file. Each rank is a process of the trace. Spans must be on one clock; times
// are written from the first step's begin on.
// states: states_of(ranks).
std::string chrome_trace(const std::vector<RankProfile>& ranks,
                         const std::vector<RankStates>& states, const ProfileReport& report);

}  // namespace trireme::train
