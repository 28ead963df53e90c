#include "trireme/train/profile/spans.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using nlohmann::json;

json pack(const Span& span) { return {span.begin_ns, span.end_ns}; }
Span span_of(const json& array) { return {array.at(0), array.at(1)}; }

json pack(const StepSpan& step) { return {step.step, pack(step.time)}; }
StepSpan step_of(const json& array) { return {array.at(0), span_of(array.at(1))}; }

json pack(const PhaseSpan& phase) { return {static_cast<int>(phase.phase), pack(phase.time)}; }
PhaseSpan phase_of(const json& array) {
  return {static_cast<Phase>(array.at(0).get<int>()), span_of(array.at(1))};
}

json pack(const OperatorSpan& found) {
  return {found.name, pack(found.time), found.thread, found.device, found.flops};
}
OperatorSpan operator_of(const json& array) {
  return {array.at(0), span_of(array.at(1)), array.at(2), array.at(3), array.at(4)};
}

json pack(const GroupOfRanks& group) { return json::array({group.name, group.world_ranks}); }
GroupOfRanks group_of(const json& array) { return {array.at(0), array.at(1)}; }

json pack(const CallSpan& call) {
  return {call.operation,  call.group,         call.sequence,          call.bytes, call.issued_ns,
          pack(call.time), call.is_background, call.is_point_to_point, call.peer,  call.tag};
}
CallSpan call_of(const json& array) {
  return {array.at(0),          array.at(1), array.at(2), array.at(3), array.at(4),
          span_of(array.at(5)), array.at(6), array.at(7), array.at(8), array.at(9)};
}

// `peak` does not belong in a profile of time.
json pack(const parallel::PipelineProfile& run) {
  json actions = json::array();
  for (const auto& [action, start, end] : run.actions) {
    actions.push_back({static_cast<int>(action.kind), action.stage, action.microbatch, start, end});
  }
  return {std::chrono::nanoseconds(run.begin.time_since_epoch()).count(), run.waiting.count(),
          run.bytes_sent, std::move(actions)};
}
parallel::PipelineProfile pipeline_run_of(const json& array) {
  parallel::PipelineProfile run;
  run.begin += std::chrono::nanoseconds(array.at(0).get<int64_t>());
  run.waiting = std::chrono::nanoseconds(array.at(1).get<int64_t>());
  run.bytes_sent = array.at(2);
  for (const json& action : array.at(3)) {
    const auto kind = static_cast<parallel::ActionKind>(action.at(0).get<int>());
    run.actions.push_back({{kind, action.at(1), action.at(2)}, action.at(3), action.at(4)});
  }
  return run;
}

template <typename Item>
json pack_all(const std::vector<Item>& items) {
  json array = json::array();
  for (const Item& item : items) array.push_back(pack(item));
  return array;
}

template <typename Item>
std::vector<Item> unpack_all(const json& array, Item (*unpack)(const json&)) {
  std::vector<Item> items;
  for (const json& item : array) items.push_back(unpack(item));
  return items;
}

}  // namespace

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, kNumPhases> kNames = {"data", "forward_backward", "norm",
                                                                 "optimizer", "exchange"};
  return kNames.at(static_cast<size_t>(phase));
}

void shift(RankProfile& profile, int64_t nanoseconds) {
  const auto move = [&](auto& items) {
    for (auto& item : items) {
      item.time.begin_ns += nanoseconds;
      item.time.end_ns += nanoseconds;
    }
  };
  move(profile.steps);
  move(profile.phases);
  move(profile.operators);
  move(profile.calls);
  for (CallSpan& call : profile.calls) call.issued_ns += nanoseconds;
  for (parallel::PipelineProfile& run : profile.pipeline_runs) {
    run.begin += std::chrono::nanoseconds(nanoseconds);
  }
}

std::string to_bytes(const RankProfile& profile) {
  const json whole = {{"rank", profile.rank},
                      {"host", profile.host},
                      {"steps", pack_all(profile.steps)},
                      {"phases", pack_all(profile.phases)},
                      {"operators", pack_all(profile.operators)},
                      {"groups", pack_all(profile.groups)},
                      {"calls", pack_all(profile.calls)},
                      {"pipeline_runs", pack_all(profile.pipeline_runs)},
                      {"pipeline_rank", profile.pipeline_rank},
                      {"num_lost_calls", profile.num_lost_calls}};
  std::string bytes;
  json::to_cbor(whole, bytes);
  return bytes;
}

RankProfile rank_profile_of(std::string_view bytes) {
  try {
    const json whole = json::from_cbor(bytes);
    return {.rank = whole.at("rank"),
            .host = whole.at("host"),
            .steps = unpack_all(whole.at("steps"), step_of),
            .phases = unpack_all(whole.at("phases"), phase_of),
            .operators = unpack_all(whole.at("operators"), operator_of),
            .groups = unpack_all(whole.at("groups"), group_of),
            .calls = unpack_all(whole.at("calls"), call_of),
            .pipeline_runs = unpack_all(whole.at("pipeline_runs"), pipeline_run_of),
            .pipeline_rank = whole.at("pipeline_rank"),
            .num_lost_calls = whole.at("num_lost_calls")};
  } catch (const json::exception& error) {
    throw InternalError(concat("a rank's profile cannot be read: ", error.what()));
  }
}

TimeSet::TimeSet(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.length_ns() == 0; });
  std::ranges::sort(spans, {}, &Span::begin_ns);
  for (const Span& span : spans) {
    if (!spans_.empty() && span.begin_ns <= spans_.back().end_ns) {
      spans_.back().end_ns = std::max(spans_.back().end_ns, span.end_ns);
    } else {
      spans_.push_back(span);
    }
  }
}

int64_t TimeSet::total_ns() const {
  int64_t total = 0;
  for (const Span& span : spans_) total += span.length_ns();
  return total;
}

TimeSet operator|(const TimeSet& a, const TimeSet& b) {
  std::vector<Span> spans = a.spans_;
  spans.insert(spans.end(), b.spans_.begin(), b.spans_.end());
  return TimeSet(std::move(spans));
}

TimeSet operator&(const TimeSet& a, const TimeSet& b) {
  TimeSet both;
  auto left = a.spans_.begin();
  auto right = b.spans_.begin();
  while (left != a.spans_.end() && right != b.spans_.end()) {
    const Span common{std::max(left->begin_ns, right->begin_ns),
                      std::min(left->end_ns, right->end_ns)};
    if (common.length_ns() > 0) both.spans_.push_back(common);
    // The span that ends first meets nothing else.
    if (left->end_ns < right->end_ns) {
      ++left;
    } else {
      ++right;
    }
  }
  return both;
}

TimeSet operator-(const TimeSet& a, const TimeSet& b) {
  TimeSet rest;
  auto hole = b.spans_.begin();
  for (Span span : a.spans_) {
    while (hole != b.spans_.end() && hole->end_ns <= span.begin_ns) ++hole;
    // A hole may reach into the next span, so it is looked at again there.
    for (auto next = hole; next != b.spans_.end() && next->begin_ns < span.end_ns; ++next) {
      if (next->begin_ns > span.begin_ns) {
        rest.spans_.push_back({span.begin_ns, next->begin_ns});
      }
      span.begin_ns = next->end_ns;
    }
    if (span.length_ns() > 0) rest.spans_.push_back(span);
  }
  return rest;
}

}  // namespace trireme::train
