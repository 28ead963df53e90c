// A pipeline schedule as data: a list of actions for each rank, in order. Pure functions make it
// (builders.h), schedule_check.h checks it, timeline.h times and draws it, and
// executor.h runs it. It knows nothing of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::parallel {

enum class ActionKind {
  kForward,
  kBackward,        // both parts at once
  kBackwardInput,   // the gradient of the stage's inputs
  kBackwardWeight,  // the gradient of its weights, from the state of kBackwardInput
  kSendActivation,  // to peer_stage, which sends the gradient back
  kRecvActivation,  // from peer_stage
  kSendGradient,
  kRecvGradient,
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;  // of this rank
  int microbatch = 0;
  int peer_stage = -1;  // the other end of a send or recv
  bool operator==(const Action&) const = default;
};

bool is_compute(ActionKind kind);
bool is_send(ActionKind kind);
// "forward of microbatch 3 on stage 1", "send of microbatch 3's gradient from stage 2 to stage 1".
std::string to_string(const Action& action);

// Data that goes from one stage to a later one. Its gradient comes back.
struct StageEdge {
  int from = 0;
  int to = 0;
  auto operator<=>(const StageEdge&) const = default;
};

// Stages are pieces of the model, numbered along it. A rank may hold several (chunks).
struct Schedule {
  std::string name;
  int num_microbatches = 0;
  std::vector<int> rank_of_stage;
  std::vector<StageEdge> edges;  // sorted; each stage feeds the next, and possibly others
  std::vector<std::vector<Action>> actions{};  // by rank
  bool operator==(const Schedule&) const = default;

  int num_ranks() const { return static_cast<int>(actions.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  // The stage's index among those of its rank; 0 is nearest to the model's input.
  int chunk_of(int stage) const;
  // Differs between different schedules. For comparison between ranks.
  std::string fingerprint() const;
};

// Durations, in any unit. A kBackward takes backward_input + backward_weight.
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double total() const { return forward + backward_input + backward_weight; }
};
struct PipelineCosts {
  std::vector<StageCosts> stages = {{}};  // one per stage, or one for all
  // Time from the end of a compute action to the start of an action on another rank that needs it.
  // Occupies neither rank.
  double communication = 0;
  // The share of a forward's activations that the weight part needs and kBackwardInput keeps.
  double kept_for_weight = 1;
  const StageCosts& of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<size_t>(stage)];
  }
};
double duration_of(const Action& action, const PipelineCosts& costs);

struct ScheduleOptions {
  int num_ranks = 1;
  int num_microbatches = 1;
  int num_chunks = 0;  // stages per rank; 0: the schedule's own number, 1 or 2
  PipelineCosts costs{};
  // Zero-bubble schedules: the most activations a rank may hold, in microbatches over all its
  // stages. 0: as many as 1F1B, num_ranks.
  double memory_limit = 0;
};

// The names that a config may use.
std::vector<std::string> schedule_names();
// options.num_chunks, or the schedule's own number if that is 0. Throws: as make_schedule().
int num_chunks_of(std::string_view name, const ScheduleOptions& options);
// Whether its first and last stage are on the same rank, as in a V.
// Throws: ConfigError when the name is unknown
bool ends_where_it_begins(std::string_view name);
// The schedule of that name, with its sends and recvs.
// Throws: ConfigError when the name is unknown or a number is out of the schedule's range
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

// Edges from each stage to the next.
std::vector<StageEdge> chain_edges(int num_stages);
// Assigns stages to ranks in turn: 0, 1, 2, 0, 1, 2.
std::vector<int> round_robin(int num_ranks, int num_chunks);

// Adds sends and recvs to the schedule's compute actions, for `edges` between stages of different
// ranks. All ranks' lists follow one order of all transfers and computations. Ranks therefore never
// wait for each other in a circle, even if each send waits for its recv.
// Throws: ConfigError when the compute actions wait for each other in a circle
Schedule with_transfers(Schedule schedule, std::vector<StageEdge> edges);

// Only the forwards and activations, in the same order: an evaluation.
Schedule forward_only(const Schedule& schedule);

// The bubble that the literature states for equal stages, in the unit of the costs: the idle time
// of the busiest rank. Negative if no formula applies.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2023, arXiv:2401.10241,
//         table 2 and section 6; Lamy-Poirier 2022, arXiv:2211.05953, section 3
double bubble_formula(std::string_view name, const ScheduleOptions& options);

}  // namespace trireme::parallel
