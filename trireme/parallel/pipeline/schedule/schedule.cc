#include "trireme/parallel/pipeline/schedule/schedule.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/builders.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

// One row per schedule: its number of stages per rank, its builder, and the bubble its paper
// states.
struct Builder {
  std::string_view name;
  int default_chunks;
  int min_chunks;
  int max_chunks;
  bool ends_where_it_begins;  // the first and the last stage are on one rank
  std::function<Schedule(const ScheduleOptions&)> build;
  double (*bubble)(const ScheduleOptions&);
};

constexpr int kMaxChunks = 1 << 10;
constexpr double kNoFormula = -1;

double ramp(const ScheduleOptions& options) { return options.num_ranks - 1; }

double bubble_of_any(const ScheduleOptions& options) {
  return ramp(options) * options.costs.of(0).total();
}

double bubble_of_multiples(const ScheduleOptions& options) {
  return options.num_microbatches % options.num_ranks == 0 ? bubble_of_any(options) : kNoFormula;
}

double bubble_when_full(const ScheduleOptions& options) {
  return options.num_microbatches >= options.num_ranks ? bubble_of_any(options) : kNoFormula;
}

// For ZB-H1. With more memory (ZB-H2 and beyond) the heuristic has no formula.
double bubble_of_h1(const ScheduleOptions& options) {
  const StageCosts& costs = options.costs.of(0);
  // The paper's formula assumes weight parts that fit into the gaps.
  const bool is_h1 = options.memory_limit == 0 || options.memory_limit == options.num_ranks;
  const bool is_full = options.num_microbatches >= options.num_ranks;
  if (!is_h1 || !is_full || costs.backward_weight > costs.backward_input) return kNoFormula;
  return ramp(options) * (costs.forward + costs.backward_input - costs.backward_weight);
}

double bubble_of_v(const ScheduleOptions& options) {
  const StageCosts& costs = options.costs.of(0);
  const bool is_even =
      costs.forward == costs.backward_input && costs.forward == costs.backward_weight;
  return is_even && options.num_microbatches >= 2 * options.num_ranks ? 0 : kNoFormula;
}

const std::vector<Builder>& builders() {
  using O = const ScheduleOptions&;
  static const std::vector<Builder> all = {
      {"gpipe", 1, 1, 1, false, [](O o) { return gpipe(o.num_ranks, o.num_microbatches); },
       bubble_of_any},
      {"1f1b", 1, 1, 1, false,
       [](O o) { return one_forward_one_backward(o.num_ranks, o.num_microbatches); },
       bubble_of_any},
      {"interleaved", 2, 1, kMaxChunks, false,
       [](O o) { return interleaved(o.num_ranks, o.num_chunks, o.num_microbatches); },
       bubble_of_multiples},
      {"zero-bubble", 1, 1, 1, false, zero_bubble, bubble_of_h1},
      {"zero-bubble-v", 2, 2, 2, true, zero_bubble_v, bubble_of_v},
      {"breadth-first", 2, 1, kMaxChunks, false,
       [](O o) { return breadth_first(o.num_ranks, o.num_chunks, o.num_microbatches); },
       bubble_when_full},
  };
  return all;
}

const Builder& builder_of(std::string_view name) {
  const auto found = std::ranges::find(builders(), name, &Builder::name);
  TRIREME_CHECK(found != builders().end(), "pipeline schedule \"", name, "\"; expected one of ",
                joined(schedule_names()));
  return *found;
}

void check_range(std::string_view what, int64_t value, int64_t least, int64_t most) {
  TRIREME_CHECK(value >= least && value <= most, what, " is ", value, "; expected ", least,
                least == most ? "" : concat(" to ", most));
}

// Fills in the schedule's own number of chunks if none was given.
ScheduleOptions complete(const Builder& builder, ScheduleOptions options) {
  // Far above any run; products of it still fit.
  constexpr int kMost = 1 << 16;
  check_range("the number of pipeline ranks", options.num_ranks, 1, kMost);
  check_range("the number of microbatches", options.num_microbatches, 1, kMost);
  if (options.num_chunks == 0) options.num_chunks = builder.default_chunks;
  check_range(concat("the number of stages per rank for ", builder.name), options.num_chunks,
              builder.min_chunks, builder.max_chunks);
  const size_t num_costs = options.costs.stages.size();
  const auto num_stages = static_cast<size_t>(options.num_ranks) * options.num_chunks;
  TRIREME_CHECK(num_costs == 1 || num_costs == num_stages, "costs of ", num_costs,
                " stages; expected 1 or ", num_stages);
  return options;
}

const char* verb_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return "forward";
    case ActionKind::kBackward: return "backward";
    case ActionKind::kBackwardInput: return "input part of the backward";
    case ActionKind::kBackwardWeight: return "weight part of the backward";
    case ActionKind::kSendActivation:
    case ActionKind::kSendGradient: return "send";
    default: return "recv";
  }
}

}  // namespace

bool is_compute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

std::string to_string(const Action& action) {
  if (is_compute(action.kind)) {
    return concat(verb_of(action.kind), " of microbatch ", action.microbatch, " on stage ",
                  action.stage);
  }
  const bool gradient =
      action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kRecvGradient;
  const bool send = is_send(action.kind);
  return concat(verb_of(action.kind), " of microbatch ", action.microbatch, "'s ",
                gradient ? "gradient" : "activation", " from stage ",
                send ? action.stage : action.peer_stage, " to stage ",
                send ? action.peer_stage : action.stage);
}

int Schedule::chunk_of(int stage) const {
  return static_cast<int>(std::count(rank_of_stage.begin(), rank_of_stage.begin() + stage,
                                     rank_of_stage[static_cast<size_t>(stage)]));
}

std::string Schedule::fingerprint() const {
  std::string text;
  for (const int rank : rank_of_stage) text += concat(rank, ' ');
  for (const auto& list : actions) {
    for (const Action& action : list) {
      text += concat(static_cast<int>(action.kind), ' ', action.stage, ' ', action.microbatch, ' ',
                     action.peer_stage, ' ');
    }
  }
  return concat(name, " of ", num_microbatches, " microbatches and ", num_stages(), " stages (",
                // A hash is enough: ranks compare it to find a mistake, not an attack.
                std::hash<std::string>()(text), ")");
}

double duration_of(const Action& action, const PipelineCosts& costs) {
  const StageCosts& stage = costs.of(action.stage);
  switch (action.kind) {
    case ActionKind::kForward: return stage.forward;
    case ActionKind::kBackward: return stage.backward_input + stage.backward_weight;
    case ActionKind::kBackwardInput: return stage.backward_input;
    case ActionKind::kBackwardWeight: return stage.backward_weight;
    default: return 0;
  }
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Builder& builder : builders()) names.emplace_back(builder.name);
  return names;
}

int num_chunks_of(std::string_view name, const ScheduleOptions& options) {
  return complete(builder_of(name), options).num_chunks;
}

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  const Builder& builder = builder_of(name);
  Schedule schedule = builder.build(complete(builder, options));
  std::vector<StageEdge> edges = schedule.edges;
  return with_transfers(std::move(schedule), std::move(edges));
}

std::vector<StageEdge> chain_edges(int num_stages) {
  std::vector<StageEdge> edges;
  for (int stage = 0; stage + 1 < num_stages; ++stage) edges.push_back({stage, stage + 1});
  return edges;
}

std::vector<int> round_robin(int num_ranks, int num_chunks) {
  std::vector<int> ranks;
  for (int stage = 0; stage < num_ranks * num_chunks; ++stage) ranks.push_back(stage % num_ranks);
  return ranks;
}

bool ends_where_it_begins(std::string_view name) { return builder_of(name).ends_where_it_begins; }

double bubble_formula(std::string_view name, const ScheduleOptions& options) {
  // Formulas are for equal stages without communication.
  if (options.costs.stages.size() > 1 || options.costs.communication != 0) return kNoFormula;
  const Builder& builder = builder_of(name);
  return builder.bubble(complete(builder, options));
}

namespace {

// A position in the order that all ranks follow. A computation starts at `time`. Data to send was
// ready at `time`, so at equal times sends precede computations.
struct Event {
  double time = 0;
  bool is_compute = false;
  int rank = 0;
  Action action;
  int peer_rank = -1;
  Action peer_action{};
};

Event transfer(const Schedule& schedule, double time, const Action& producer, int to_stage) {
  const bool forward = producer.kind == ActionKind::kForward;
  return {.time = time,
          .rank = schedule.rank_of_stage[producer.stage],
          .action = {forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                     producer.stage, producer.microbatch, to_stage},
          .peer_rank = schedule.rank_of_stage[to_stage],
          .peer_action = {forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient,
                          to_stage, producer.microbatch, producer.stage}};
}

void add_transfers(const Schedule& schedule, const TimedAction& timed, std::vector<Event>& events) {
  const Action& action = timed.action;
  // Its result stays on the rank.
  if (action.kind == ActionKind::kBackwardWeight) return;
  const bool forward = action.kind == ActionKind::kForward;
  for (const StageEdge& edge : schedule.edges) {
    const auto [own, other] =
        forward ? std::pair(edge.from, edge.to) : std::pair(edge.to, edge.from);
    if (own == action.stage && schedule.rank_of_stage[own] != schedule.rank_of_stage[other])
      events.push_back(transfer(schedule, timed.end, action, other));
  }
}

}  // namespace

Schedule with_transfers(Schedule schedule, std::vector<StageEdge> edges) {
  std::ranges::sort(edges);
  edges.erase(std::ranges::unique(edges).begin(), edges.end());
  for (const StageEdge& edge : edges) {
    TRIREME_CHECK(edge.from >= 0 && edge.from < edge.to && edge.to < schedule.num_stages(),
                  "an edge from stage ", edge.from, " to stage ", edge.to,
                  "; expected one to a later of ", schedule.num_stages(), " stages");
  }
  schedule.edges = std::move(edges);
  std::vector<Event> events;
  // With equal costs. The order only has to be the same on all ranks, and this one is possible.
  const Timeline timeline = make_timeline(schedule, {});
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const TimedAction& timed : timeline.ranks[rank]) {
      events.push_back(
          {.time = timed.start, .is_compute = true, .rank = rank, .action = timed.action});
      add_transfers(schedule, timed, events);
    }
    schedule.actions[rank].clear();
  }
  // Stable: events of equal time keep the order of ranks.
  std::ranges::stable_sort(
      events, {}, [](const Event& event) { return std::pair(event.time, event.is_compute); });
  for (const Event& event : events) {
    schedule.actions[event.rank].push_back(event.action);
    if (!event.is_compute) schedule.actions[event.peer_rank].push_back(event.peer_action);
  }
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  for (auto& actions : result.actions) {
    std::erase_if(actions, [](const Action& action) {
      return action.kind != ActionKind::kForward && action.kind != ActionKind::kSendActivation &&
             action.kind != ActionKind::kRecvActivation;
    });
  }
  return result;
}

}  // namespace trireme::parallel
