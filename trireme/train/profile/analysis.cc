#include "trireme/train/profile/analysis.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/background_work.h"

namespace trireme::train {
namespace {

bool computes(Phase phase) { return phase != Phase::kData && phase != Phase::kExchange; }
bool is_on_steps_thread(const OperatorSpan& found) { return found.device < 0 && found.thread == 0; }
bool is_wait(const OperatorSpan& found) {
  return is_on_steps_thread(found) && found.name == comm::kWaitEvent;
}
bool communicates(const OperatorSpan& kernel) {
  return kernel.device >= 0 && kernel.name.starts_with("nccl");
}
bool has_gpu(const RankProfile& rank) {
  return std::ranges::any_of(rank.operators, [](const auto& found) { return found.device >= 0; });
}

// The times of the items for which `is_chosen` holds.
template <typename Item, typename Predicate>
TimeSet times_of(const std::vector<Item>& items, const Predicate& is_chosen) {
  std::vector<Span> spans;
  for (const Item& item : items) {
    if (is_chosen(item)) spans.push_back(item.time);
  }
  return TimeSet(std::move(spans));
}

TimeSet steps_of(const RankProfile& rank) {
  return times_of(rank.steps, [](const StepSpan&) { return true; });
}

TimeSet computing_of(const RankProfile& rank) {
  if (has_gpu(rank)) {
    return times_of(rank.operators, [](const OperatorSpan& found) {
      return found.device >= 0 && !communicates(found);
    });
  }
  const TimeSet phases =
      times_of(rank.phases, [](const PhaseSpan& span) { return computes(span.phase); });
  const TimeSet calls =
      times_of(rank.calls, [](const CallSpan& call) { return !call.is_background; });
  return phases - (calls | times_of(rank.operators, is_wait));
}

// An entry that nests on the steps' thread.
struct Entry {
  Span time{};
  const OperatorSpan* found = nullptr;  // null: a phase or a call
  const PhaseSpan* phase = nullptr;     // null: an operator or a call
  int64_t own_ns = 0;
  bool is_counted = false;  // it is computation
};

std::vector<Entry> entries_of(const RankProfile& rank, const TimeSet& steps) {
  std::vector<Entry> entries;
  const auto add = [&](const Span& time, Entry entry) {
    if ((TimeSet({time}) & steps).total_ns() == 0) return;
    entry.time = time;
    entry.own_ns = time.length_ns();
    entries.push_back(entry);
  };
  for (const PhaseSpan& phase : rank.phases) {
    add(phase.time, {.phase = &phase, .is_counted = computes(phase.phase)});
  }
  for (const OperatorSpan& found : rank.operators) {
    if (is_on_steps_thread(found)) add(found.time, {.found = &found});
  }
  for (const CallSpan& call : rank.calls) {
    if (!call.is_background) add(call.time, {});
  }
  // Parents before children. If equally long: phases, then operators, then calls.
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.time.begin_ns, -a.time.end_ns) < std::pair(b.time.begin_ns, -b.time.end_ns);
  });
  return entries;
}

// Subtracts from each entry what lies inside it. Entries that overlap only partly, because of two
// clocks, lose the common time.
void keep_own_time(std::vector<Entry>& entries) {
  std::vector<Entry*> open;
  for (Entry& entry : entries) {
    while (!open.empty() && open.back()->time.end_ns <= entry.time.begin_ns) open.pop_back();
    if (!open.empty()) {
      Entry& parent = *open.back();
      parent.own_ns -= std::min(parent.time.end_ns, entry.time.end_ns) - entry.time.begin_ns;
      // An operator counts if the phase around it does.
      if (entry.found != nullptr) entry.is_counted = parent.is_counted && !is_wait(*entry.found);
    }
    open.push_back(&entry);
  }
}

std::vector<OwnTime> own_times_of_kernels(const RankProfile& rank, const TimeSet& steps) {
  std::vector<OwnTime> times;
  for (const OperatorSpan& kernel : rank.operators) {
    if (kernel.device < 0 || communicates(kernel)) continue;
    const int64_t inside_ns = (TimeSet({kernel.time}) & steps).total_ns();
    if (inside_ns > 0) times.push_back({kernel.name, inside_ns, kernel.flops});
  }
  return times;
}

}  // namespace

Arrivals::Arrivals(const std::vector<RankProfile>& ranks) {
  for (const RankProfile& rank : ranks) {
    for (const CallSpan& call : rank.calls) {
      if (call.is_point_to_point || call.group < 0) continue;
      const GroupOfRanks& group = rank.groups.at(call.group);
      int64_t& last =
          last_ns_.try_emplace({group.name, group.world_ranks, call.sequence}, call.time.begin_ns)
              .first->second;
      last = std::max(last, call.time.begin_ns);
    }
  }
}

Span Arrivals::wait(const RankProfile& rank, const CallSpan& call) const {
  if (call.is_point_to_point || call.group < 0) return {call.time.begin_ns, call.time.begin_ns};
  const GroupOfRanks& group = rank.groups.at(call.group);
  const int64_t last = last_ns_.at({group.name, group.world_ranks, call.sequence});
  return {call.time.begin_ns, std::min(last, call.time.end_ns)};
}

std::vector<RankStates> states_of(const std::vector<RankProfile>& ranks) {
  const Arrivals arrivals(ranks);
  std::vector<RankStates> all;
  for (const RankProfile& rank : ranks) {
    RankStates states;
    states.steps = steps_of(rank);
    states.computing = computing_of(rank) & states.steps;
    const TimeSet calls = times_of(rank.calls, [](const CallSpan&) { return true; });
    const TimeSet others = times_of(rank.operators, [](const OperatorSpan& found) {
      return is_wait(found) || communicates(found);
    });
    // If calls are not recorded, the phase that only communicates stands for its calls.
    const TimeSet exchanges = times_of(rank.phases, [&](const PhaseSpan& span) {
      return rank.calls.empty() && ranks.size() > 1 && span.phase == Phase::kExchange;
    });
    states.communication = (calls | others | exchanges) & states.steps;
    const TimeSet foreground =
        times_of(rank.calls, [](const CallSpan& call) { return !call.is_background; });
    const TimeSet loading =
        times_of(rank.phases, [](const PhaseSpan& span) { return span.phase == Phase::kData; });
    states.data = (loading & states.steps) - states.computing - foreground;
    states.exposed = states.communication - states.computing - states.data;
    std::vector<Span> waits;
    for (const CallSpan& call : rank.calls) waits.push_back(arrivals.wait(rank, call));
    states.late = TimeSet(std::move(waits)) & states.exposed;
    states.idle = states.steps - states.computing - states.data - states.exposed;
    all.push_back(std::move(states));
  }
  return all;
}

std::vector<OwnTime> own_times(const RankProfile& rank) {
  const TimeSet steps = steps_of(rank);
  if (has_gpu(rank)) return own_times_of_kernels(rank, steps);
  std::vector<Entry> entries = entries_of(rank, steps);
  keep_own_time(entries);
  std::vector<OwnTime> times;
  for (const Entry& entry : entries) {
    if (!entry.is_counted || entry.own_ns <= 0) continue;
    if (entry.found != nullptr) {
      times.push_back({entry.found->name, entry.own_ns, entry.found->flops});
    } else {
      times.push_back({std::string(name_of(entry.phase->phase)) + ": other code", entry.own_ns, 0,
                       /*is_operator=*/false});
    }
  }
  return times;
}

}  // namespace trireme::train
