// What a config with learners must be.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/learner/mixing.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/parallel/learner/rounds.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/setting_rules.h"
#include "trireme/train/optimizer/sign_schedule.h"

namespace trireme::train {
namespace {

std::vector<SettingRule> learner_rules(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const ParallelConfig& parallel = config.parallel;
  const OffloadConfig& offload = config.offload;
  return {{"parallel.servers", parallel.servers > 0 && !config.outer.is_decoupled(),
           "their weights would be in two places", "set it to 0, or outer.method to \"decoupled\""},
          {"parallel.teachers", parallel.teachers > 0, "they answer one group of students",
           "leave it out: each learner then has the teacher in place"},
          {"parallel.auto", parallel.automatic, "the planner does not place learners",
           "set it to false"},
          {"parallel.rebalance_interval", parallel.rebalance_interval > 0,
           "stages move in a checkpoint of all ranks", "set it to 0"},
          {"train.reproducible with parallel.gradient_order = \"rank-first\"", config.takes_turns(),
           "ranks of all learners would take turns at samples",
           "set parallel.gradient_order to \"microbatch-first\""},
          {"train.precision = \"fp16\"", train.precision == c10::kHalf,
           "each learner would have a loss scale of its own", "use bf16 or fp32"},
          {concat("optimizer.name = \"", shown(config.optimizer.name),
                  "\" and outer.states = \"average\""),
           signs_of(config.optimizer) == SignsOf::kMomentum &&
               config.outer.states == OuterStates::kAverage,
           "the mean would change the momentum of which ranks exchange signs",
           "set outer.states to \"keep\""},
          {concat("optimizer.name = \"", shown(config.optimizer.name),
                  "\" and outer.begin = ", config.outer.begin,
                  " above optimizer.freeze_step = ", config.optimizer.freeze_step),
           signs_of(config.optimizer) == SignsOf::kMomentum &&
               config.outer.begin > config.optimizer.freeze_step,
           "learners would sum momentum that each of them has in full",
           "set optimizer.freeze_step to at least outer.begin"},
          {"train.uneven_batches", train.uneven_batches, "a learner might get no samples in a step",
           "set it to false"},
          {"data.last_batch = \"keep\"", config.data.last_batch == dataset::LastBatch::kKeep,
           "a learner might get no samples in a step", "set it to fill or drop"},
          {"data.skip_bad_samples", config.data.skip_bad_samples > 0,
           "learners do not exchange which samples are bad", "set it to 0"},
          {"checkpoint.memory_interval", config.checkpoint.memory_interval > 0,
           "a copy in memory is of all learners", "set it to 0"},
          {"offload.optimizer", offload.optimizer != OffloadPlace::kNone,
           "an exchange changes weights in memory", "set it to none"},
          {"offload.parameters", offload.parameters != OffloadPlace::kNone,
           "an exchange changes weights in memory", "set it to none"}};
}

void check_gossip(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  const std::string method = name_of(kOuterMethods, outer.method);
  if (outer.has_common()) {
    TRIREME_CHECK(outer.graph == OuterConfig().graph, "outer.graph is \"", shown(outer.graph),
                  "\" and outer.method \"", method,
                  "\", in which all exchange with all; leave it out, or set outer.method = "
                  "\"gossip\"");
    return;
  }
  const std::string weights = "neighbours exchange weights, and not what changed since common ones";
  const std::string remedy = "leave it out, or use average or diloco";
  const SettingRule rules[] = {
      {concat("outer.delay = ", outer.delay), outer.delay > 0, "neighbours wait for each other",
       remedy},
      {"outer.wire = \"" + name_of(kOuterWires, outer.wire) + "\"",
       outer.wire != parallel::WireCode::kFloat32, weights, remedy},
      {concat("outer.kept = ", outer.kept), outer.kept < 1, weights, remedy},
      {"outer.states = \"average\"", outer.states == OuterStates::kAverage,
       "each learner keeps its states", remedy}};
  refuse_settings("outer.method is \"" + method + "\" with", rules);
  const std::vector<int> hosts(static_cast<size_t>(config.parallel.learners));
  const parallel::LearnerGraph graph = parallel::make_named_graph(outer.graph, hosts);
  TRIREME_CHECK(outer.method == OuterMethod::kPushSum ||
                    graph.kind == parallel::MixingKind::kDoublyStochastic,
                "outer.graph ", graph.name,
                " does not keep the mean of the learners: some give more than they get; set "
                "outer.method = \"push-sum\"");
  if (outer.method == OuterMethod::kD2) parallel::graph_of_d2(graph);
}

// Learners that are runs of their own.
void check_meeting(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  if (!outer.meets()) {
    TRIREME_CHECK(outer.place == 0, "outer.place is ", outer.place,
                  " without outer.meeting; set that to where `trireme meet` listens");
    return;
  }
  TRIREME_CHECK(outer.place < config.parallel.learners, "outer.place is ", outer.place,
                " of parallel.learners = ", config.parallel.learners, "; expected 0 to ",
                config.parallel.learners - 1);
  const std::string remedy = "leave one of them out";
  const SettingRule rules[] = {
      {"outer.method = \"" + name_of(kOuterMethods, outer.method) + "\"", !outer.has_common(),
       "who comes late takes the common weights, and there are none", remedy},
      {concat("parallel.servers = ", config.parallel.servers), config.parallel.servers > 0,
       "these learners keep the common weights themselves", remedy},
      {concat("outer.staleness = ", outer.staleness), outer.staleness != OuterConfig().staleness,
       "a late learner takes the newest weights before a round waits for it again", remedy},
      {concat("outer.begin = ", outer.begin), outer.begin > 0,
       "learners that come and go cannot sum gradients in every step", remedy},
      {concat("outer.fragments = ", outer.fragments), outer.fragments > 1,
       "a round decides about the whole model", remedy},
      {concat("outer.delay = ", outer.delay), outer.delay > 0,
       "a round is decided before the next step", remedy},
      {"outer.states = \"average\"", outer.states == OuterStates::kAverage,
       "each learner keeps its states", remedy},
      {"train.epochs", config.train.epochs > 0, "learners begin at steps of their own", remedy}};
  refuse_settings("outer.meeting cannot be combined with", rules);
}

// Rounds with a quorum.
std::vector<SettingRule> quorum_rules(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  return {
      {"train.reproducible", config.train.reproducible, "it depends on who is in time",
       "set it to false, or outer.method to \"diloco\""},
      {concat("outer.grace_seconds = ", outer.grace_seconds),
       outer.grace_seconds > 0 && (outer.quorum == 0 || outer.quorum == config.parallel.learners),
       "a quorum of all has no others to wait for", "set outer.quorum to less, or leave it out"}};
}

// Each learner's first rank talks to servers, which have the common weights.
std::vector<SettingRule> decoupled_rules(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const OuterConfig& outer = config.outer;
  const std::string whole = "each rank of a learner has the whole model", one = "set it to 1";
  std::vector<SettingRule> rules = {
      {"parallel.served = \"tables\"", parallel.served == Served::kTables,
       "the servers have all weights", "leave it out"},
      {concat("parallel.staleness = ", parallel.staleness), parallel.staleness != 0,
       "it counts steps, and learners exchange rounds", "leave it out, and set outer.staleness"},
      {"parallel.host_sums", parallel.host_sums, "a learner is one worker", "set it to false"},
      {concat("parallel.zero = ", parallel.zero), parallel.zero > 0, whole, "set it to 0"},
      {concat("outer.begin = ", outer.begin), outer.begin > 0, "learners sum no gradients",
       "set it to 0"},
      {"outer.states = \"average\"", outer.states == OuterStates::kAverage,
       "servers have no states of the learners", "set it to keep"},
      {"train.precision = \"" + name_of(kPrecisions, config.train.precision) + "\"",
       config.train.precision != c10::kFloat && config.train.precision != c10::kDouble,
       "servers have no master weights", "set it to fp32 or fp64"},
      {concat("train.device = \"", name_of(kDeviceChoices, config.train.device), "\""),
       config.train.device == DeviceChoice::kCuda || !config.device.is_cpu(),
       "servers and learners compute on CPUs", "set it to cpu"}};
  for (const AxisKey& key : kAxisKeys) {
    if (std::string_view(key.axis) == "data") continue;
    const int64_t size = parallel.*key.size;
    rules.push_back({concat("parallel.", key.axis, " = ", size), size > 1, whole, one});
  }
  return rules;
}

void check_decoupled(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  const OuterConfig none;
  if (!outer.is_decoupled()) {
    TRIREME_CHECK(outer.quorum == none.quorum && outer.grace_seconds == none.grace_seconds &&
                      outer.staleness == none.staleness,
                  "outer.quorum, outer.grace_seconds and outer.staleness belong to outer.method = "
                  "\"decoupled\", which is \"",
                  name_of(kOuterMethods, outer.method), "\"; leave them out");
    return;
  }
  TRIREME_CHECK(config.parallel.servers > 0 || outer.meets(),
                "outer.method is \"decoupled\" without parallel.servers, which have the common "
                "weights; set parallel.servers, for example to 1, and start as many ranks more, or "
                "let learners be runs of their own with outer.meeting");
  TRIREME_CHECK(outer.quorum <= config.parallel.learners, "outer.quorum is ", outer.quorum,
                ", and there are ", config.parallel.learners,
                " learners; expected at most as many, or 0 for all");
  std::vector<SettingRule> rules = quorum_rules(config);
  if (!outer.meets()) std::ranges::move(decoupled_rules(config), std::back_inserter(rules));
  refuse_settings("outer.method is \"decoupled\" with", rules);
}

void check_outer(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  const OuterConfig none;
  TRIREME_CHECK(outer.has_optimizer() ||
                    (outer.learning_rate == none.learning_rate && outer.momentum == none.momentum &&
                     outer.optimizer == none.optimizer),
                "outer.learning_rate, outer.momentum and outer.optimizer belong to outer.method = "
                "\"diloco\" or \"decoupled\", which is \"",
                name_of(kOuterMethods, outer.method), "\"; leave them out");
  check_decoupled(config);
  check_gossip(config);
  parallel::Rounds({.every = outer.every, .fragments = outer.fragments, .delay = outer.delay});
  const ParallelConfig& parallel = config.parallel;
  TRIREME_CHECK(parallel.tensor == 1 || parallel.zero == 0 ||
                    (outer.wire == parallel::WireCode::kFloat32 && outer.kept == 1),
                "outer.wire is \"", name_of(kOuterWires, outer.wire), "\" and outer.kept ",
                outer.kept, " with parallel.zero = ", parallel.zero,
                " and parallel.tensor = ", parallel.tensor,
                ": what a message loses would differ between tensor ranks; set one of them to its "
                "default");
  TRIREME_CHECK(outer.delay > 0 || outer.mix == 1, "outer.mix is ", outer.mix,
                " without outer.delay: nothing has changed since the exchange; leave it out");
  TRIREME_CHECK(outer.states == OuterStates::kKeep || outer.delay == 0,
                "outer.states is \"average\" and outer.delay ", outer.delay,
                ": the mean would undo the steps made meanwhile; set outer.delay to 0, or "
                "outer.states to \"keep\"");
  TRIREME_CHECK(
      outer.states == OuterStates::kKeep || config.optimizer.state_dtype == StateDtype::kFp32,
      "outer.states is \"average\" and optimizer.state_dtype \"",
      name_of(kStateDtypes, config.optimizer.state_dtype),
      "\": means are taken in fp32; set it to fp32, or outer.states to \"keep\"");
}

}  // namespace

void check_learners(const RunConfig& config, int num_ranks) {
  const int64_t learners = config.parallel.learners;
  TRIREME_CHECK(learners > 0,
                "parallel.learners is \"hosts\", and all ranks are on one or not there yet; start "
                "ranks on several hosts (trireme run --nnodes), or set it to a number");
  if (learners == 1) {
    TRIREME_CHECK(config.outer == OuterConfig(),
                  "section [outer] says when learners exchange their weights, and there is one; "
                  "set parallel.learners, for example to 2, or leave the section out");
    return;
  }
  TRIREME_CHECK(config.outer.meets() || num_ranks % learners == 0, "parallel.learners is ",
                learners, ", which does not divide the ", num_ranks,
                num_ranks == 1 ? " rank" : " ranks", "; start a multiple of it");
  const std::string what = "parallel.learners cannot be combined with";
  refuse_settings(what, learner_rules(config));
  const bool are_ranks = !config.outer.is_decoupled() && !config.outer.meets();
  refuse_settings(what,
                  rules_of_ranks_apart(config, "learners are not in the same step",
                                       are_ranks ? RanksApart::kLearners : RanksApart::kEach));
  check_outer(config);
  check_meeting(config);
  if (!config.task) return;
  const TaskTraits task = config.task->traits();
  TRIREME_CHECK(!task.has_tables, "parallel.learners with the task ", config.task_choice.name,
                ", whose embedding tables learners do not exchange; set it to 1");
  TRIREME_CHECK(task.num_scores == 0, "parallel.learners with the task ", config.task_choice.name,
                ", whose samples are scored by all ranks before training; set it to 1");
}

// All that must stay when a run goes on, all that decides what a step does, and the layout: ranks
// of equal place in their learners have the same part of the model. Where files lie may differ.
std::string common_settings(const RunConfig& config) {
  static const std::set<std::string, std::less<>> others = {"train.steps",
                                                            "train.global_batch",
                                                            "train.batch_ramp_start",
                                                            "train.batch_ramp_steps",
                                                            "parallel.data",
                                                            "parallel.zero",
                                                            "parallel.shard",
                                                            "parallel.tensor",
                                                            "parallel.pipeline",
                                                            "parallel.schedule",
                                                            "parallel.stages_per_rank",
                                                            "parallel.stage_layers",
                                                            "parallel.context",
                                                            "parallel.expert"};
  static const std::set<std::string, std::less<>> own = {"outer.place", "init.folder", "data.path",
                                                         "data.sources", "objective.teacher"};
  RunConfig copy = config;
  std::set<std::string> kept;
  for (const Field& field : fields_of(copy)) {
    const bool is_common = field.on_resume == OnResume::kMustStay || others.contains(field.key) ||
                           field.key.starts_with("optimizer.");
    if (is_common && !own.contains(field.key)) kept.insert(field.key);
  }
  std::string text;
  for (const auto& [key, value] : settings(config)) {
    if (kept.contains(key)) text += concat(key, " = ", value, '\n');
  }
  return text;
}

}  // namespace trireme::train
