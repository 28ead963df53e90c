#include "trireme/launch/watchdog/observation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::launch {

// Observations travel from every agent to the leader with each heartbeat, so what is written is
// kept small and what is read is bounded. Groups of ranks are runs [first, distance, count],
// because a group of a mesh axis is one run whatever its size. The text is not trusted: rings are
// files that any process of the user may have written, and the leader's diagnosis indexes by what
// it reads here. Every number has its range, and the members of all groups are counted together,
// since many small runs could stand for a large memory.

namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

constexpr JsonLimits kLimits{.max_bytes = size_t{4} << 20, .max_values = 1 << 20, .max_depth = 8};
constexpr size_t kMaxObservations = 4096;
constexpr int64_t kMaxMembers = 1 << 20;  // of all groups of a text
constexpr size_t kMaxGroups = 4096;
constexpr int64_t kMaxRank = 1 << 18;
constexpr size_t kMaxName = 400;
constexpr int64_t kMaxTime = int64_t{1} << 62;
constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max();

// Names come from rings, which anybody may have written.
// Cut and made printable before they travel: they end in logs and on a terminal.
std::string name(const std::string& text) { return shown(text, 120); }

int64_t number(comm::WallTime time) { return time.time_since_epoch().count(); }

comm::WallTime time(const JsonView& view) {
  return comm::WallTime(nanoseconds(view.integer(-kMaxTime, kMaxTime)));
}

// Counts and ids that the ring holds without a sign; a hostile ring's may exceed JSON's integers.
int64_t count(uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, kMaxCount)); }

// Ranks as runs [first, distance, count]: those of most groups are one run.
json to_runs(const std::vector<int>& ranks) {
  json runs = json::array();
  for (size_t i = 0; i < ranks.size();) {
    const int64_t distance = i + 1 < ranks.size() ? int64_t{ranks[i + 1]} - ranks[i] : 1;
    size_t end = i + 1;
    while (end < ranks.size() && int64_t{ranks[end]} - ranks[end - 1] == distance) ++end;
    runs.push_back({ranks[i], distance, end - i});
    i = end;
  }
  return runs;
}

std::vector<int> parse_runs(const JsonView& view, int64_t& num_left) {
  std::vector<int> ranks;
  for (const JsonView& run : view.elements()) {
    const std::vector<int64_t> numbers = run.integers(-kMaxRank, kMaxRank);
    if (numbers.size() != 3 || numbers[2] < 1 || numbers[2] > num_left) {
      // Checked before anything grows: count is part of the text.
      run.fail("[first, distance, count] with at most a million ranks in all");
    }
    num_left -= numbers[2];
    // Both ends are checked and the middle lies between them; the distance may be negative.
    const int64_t last = numbers[0] + numbers[1] * (numbers[2] - 1);
    if (std::min(numbers[0], last) < 0 || std::max(numbers[0], last) >= kMaxRank) {
      run.fail(concat("ranks from 0 to ", kMaxRank - 1));
    }
    for (int64_t i = 0; i < numbers[2]; ++i) {
      ranks.push_back(static_cast<int>(numbers[0] + numbers[1] * i));
    }
  }
  return ranks;
}

json to_json(const comm::Record& record) {
  return {{"number", count(record.number)},
          {"sequence", count(record.sequence)},
          {"group", record.group},
          {"operation", name(record.operation)},
          {"shape", record.shape},
          {"dims", record.num_dims},
          {"elements", record.elements},
          {"kinds", {record.dtype, record.reduce_op, record.peer, record.tag}},
          {"flags", {record.is_point_to_point, record.is_background}},
          {"state", static_cast<int>(record.state)},
          {"times", {number(record.issued), number(record.started), number(record.ended)}}};
}

comm::Record parse_record(const JsonView& view, size_t num_groups) {
  comm::Record record;
  record.number = static_cast<uint64_t>(view.at("number").integer(0));
  record.sequence = static_cast<uint64_t>(view.at("sequence").integer(0));
  record.group =
      // An index into the groups; -1 is none.
      static_cast<int>(view.at("group").integer(-1, static_cast<int64_t>(num_groups) - 1));
  record.operation = view.at("operation").word(kMaxName);
  record.shape = view.at("shape").integers(-kMaxCount);
  if (record.shape.size() > 4) view.at("shape").fail("at most 4 lengths");
  record.num_dims = static_cast<int>(view.at("dims").integer(0, 255));
  record.elements = view.at("elements").integer(-kMaxCount);
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  const std::vector<int64_t> kinds = view.at("kinds").integers(-kMaxInt, kMaxInt);
  if (kinds.size() != 4 || kinds[0] < -128 || kinds[0] > 127 || kinds[1] < -1 || kinds[1] > 7 ||
      kinds[2] < -1) {
    view.at("kinds").fail("[dtype, reduction, peer, tag]");
  }
  record.dtype = static_cast<int>(kinds[0]);
  record.reduce_op = static_cast<int>(kinds[1]);
  record.peer = static_cast<int>(kinds[2]);
  record.tag = static_cast<int>(kinds[3]);
  const std::vector<JsonView> flags = view.at("flags").elements();
  if (flags.size() != 2) view.at("flags").fail("two");
  record.is_point_to_point = flags[0].boolean();
  record.is_background = flags[1].boolean();
  record.state = static_cast<comm::CallState>(view.at("state").integer(0, 3));
  const std::vector<JsonView> times = view.at("times").elements();
  if (times.size() != 3) view.at("times").fail("three");
  record.issued = time(times[0]);
  record.started = time(times[1]);
  record.ended = time(times[2]);
  return record;
}

json to_json(const comm::ObservedRank& rank) {
  const comm::Ring& ring = rank.ring;
  json object = {{"process", static_cast<int>(rank.process)},
                 {"world_size", ring.world_size},
                 {"job", name(ring.job)},
                 {"created", number(ring.created)},
                 {"now", number(ring.now)},
                 {"groups", json::array()},
                 {"records", json::array()}};
  if (ring.closed) object["closed"] = number(*ring.closed);
  for (const comm::RecordedGroup& group : ring.groups) {
    object["groups"].push_back({{"name", name(group.name)},
                                {"ranks", to_runs(group.world_ranks)},
                                {"collectives", count(group.num_collectives)},
                                {"messages", count(group.num_point_to_point)}});
  }
  for (const comm::Record& record : ring.records) object["records"].push_back(to_json(record));
  return object;
}

comm::ObservedRank parse_evidence(const JsonView& view, const Observation& of, int64_t& num_left) {
  comm::ObservedRank rank;
  rank.process = static_cast<comm::ProcessState>(
      view.at("process").integer(0, static_cast<int64_t>(comm::ProcessState::kUnknown)));
  comm::Ring& ring = rank.ring;
  ring.rank = of.rank;
  ring.host = of.host;
  ring.process_id = of.process_id;
  ring.world_size = static_cast<int>(view.at("world_size").integer(of.rank + 1, kMaxRank));
  ring.job = view.at("job").word(kMaxName);
  ring.created = time(view.at("created"));
  ring.now = time(view.at("now"));
  if (const auto closed = view.find("closed")) ring.closed = time(*closed);
  for (const JsonView& group : view.at("groups").elements()) {
    if (ring.groups.size() == kMaxGroups) group.fail("at most 4096 groups");
    ring.groups.push_back(
        {.name = group.at("name").word(kMaxName),
         .world_ranks = parse_runs(group.at("ranks"), num_left),
         .num_collectives = static_cast<uint64_t>(group.at("collectives").integer(0)),
         .num_point_to_point = static_cast<uint64_t>(group.at("messages").integer(0))});
  }
  for (const JsonView& record : view.at("records").elements()) {
    ring.records.push_back(parse_record(record, ring.groups.size()));
  }
  // The diagnosis takes the last ones as the newest.
  std::ranges::stable_sort(ring.records, {}, &comm::Record::number);
  return rank;
}

json to_json(const Observation& observation) {
  json object = {{"rank", observation.rank},
                 {"host", name(observation.host)},
                 {"process", observation.process_id},
                 {"state", name(std::string(1, observation.process_state))},
                 {"step", observation.step},
                 {"in_step", observation.is_in_step},
                 {"ring", observation.has_ring},
                 {"calls", count(observation.num_calls)},
                 {"call", name(observation.last_call)},
                 {"in_call", observation.is_in_call},
                 {"idle", observation.idle.count()},
                 {"cores", observation.cores_used},
                 {"stage", observation.stage},
                 {"windows", json::array()}};
  for (const StepWindow& window : observation.windows) {
    object["windows"].push_back(
        {window.first_step, window.computing.count(), window.waiting.count()});
  }
  if (observation.evidence) object["evidence"] = to_json(*observation.evidence);
  return object;
}

Observation parse_observation(const JsonView& view, int64_t& num_left) {
  Observation observation;
  observation.rank = static_cast<int>(view.at("rank").integer(0, kMaxRank - 1));
  observation.host = view.at("host").word(kMaxName);
  observation.process_id = view.at("process").integer(0);
  const std::string& state = view.at("state").word(1);
  if (state.size() != 1) view.at("state").fail("one letter");
  observation.process_state = state[0];
  observation.step = view.at("step").integer(0);
  observation.is_in_step = view.at("in_step").boolean();
  observation.has_ring = view.at("ring").boolean();
  observation.num_calls = static_cast<uint64_t>(view.at("calls").integer(0));
  observation.last_call = view.at("call").word(kMaxName);
  observation.is_in_call = view.at("in_call").boolean();
  observation.idle = nanoseconds(view.at("idle").integer(0, kMaxTime));
  observation.cores_used = view.at("cores").number(0, 1e6);
  observation.stage = static_cast<int>(view.at("stage").integer(0, kMaxRank));
  for (const JsonView& window : view.at("windows").elements()) {
    const std::vector<int64_t> numbers = window.integers(0, kMaxTime);
    if (numbers.size() != 3 || observation.windows.size() == kMaxWindows) {
      window.fail("at most 5 of [first step, computing, waiting]");
    }
    observation.windows.push_back({numbers[0], nanoseconds(numbers[1]), nanoseconds(numbers[2])});
  }
  if (const auto evidence = view.find("evidence")) {
    observation.evidence = parse_evidence(*evidence, observation, num_left);
  }
  return observation;
}

}  // namespace

std::string to_json(const std::vector<Observation>& observations) {
  json array = json::array();
  for (const Observation& observation : observations) array.push_back(to_json(observation));
  return array.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

std::vector<Observation> parse_observations(std::string_view text, const std::string& source) {
  const json root = parse_json(text, source, kLimits);
  int64_t num_left = kMaxMembers;
  std::vector<Observation> observations;
  const JsonView view(root, source);
  for (const JsonView& element : view.elements()) {
    if (observations.size() == kMaxObservations) view.fail("at most 4096 observations");
    observations.push_back(parse_observation(element, num_left));
  }
  return observations;
}

}  // namespace trireme::launch
