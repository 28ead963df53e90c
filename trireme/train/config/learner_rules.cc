// What a config with learners must be.
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/learner/mixing.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/parallel/learner/rounds.h"
#include "trireme/train/config/config.h"

namespace trireme::train {
namespace {

// A setting that learners cannot have.
struct LearnerRule {
  std::string setting;
  bool is_set = false;
  std::string reason;
  std::string remedy;
};

std::vector<LearnerRule> learner_rules(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const ParallelConfig& parallel = config.parallel;
  const OffloadConfig& offload = config.offload;
  const std::string apart = "learners are not in the same step";
  std::vector<LearnerRule> rules = {
      {"parallel.servers", parallel.servers > 0, "their weights would be in two places",
       "set it to 0"},
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
      {"train.shares", !train.shares.empty(), apart, "leave it out"},
      {"train.shares_interval", train.shares_interval > 0, apart, "set it to 0"},
      {"train.skip_bad_steps", train.skip_bad_steps > 0, apart, "set it to 0"},
      {"train.spike_factor", train.spike_factor > 0, apart, "set it to 0"},
      {"train.measure_noise", train.measure_noise, apart, "set it to false"},
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
  for (const NamedCallback& named : config.callbacks) {
    rules.push_back({"the callback " + named.name, hears(named, config),
                     "callbacks expect all ranks in the same step", "switch it off"});
  }
  return rules;
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
  const auto refuse = [&](bool is_set, const std::string& what, const char* why) {
    TRIREME_CHECK(!is_set, "outer.method is \"", method, "\" with ", what, ": ", why,
                  "; leave it out, or use average or diloco");
  };
  refuse(outer.delay > 0, concat("outer.delay = ", outer.delay), "neighbours wait for each other");
  refuse(outer.wire != parallel::WireCode::kFloat32,
         "outer.wire = \"" + name_of(kOuterWires, outer.wire) + "\"",
         "neighbours exchange weights, and not what changed since common ones");
  refuse(outer.kept < 1, concat("outer.kept = ", outer.kept),
         "neighbours exchange weights, and not what changed since common ones");
  refuse(outer.states == OuterStates::kAverage, "outer.states = \"average\"",
         "each learner keeps its states");
  const std::vector<int> hosts(static_cast<size_t>(config.parallel.learners));
  const parallel::LearnerGraph graph = parallel::make_named_graph(outer.graph, hosts);
  TRIREME_CHECK(outer.method == OuterMethod::kPushSum ||
                    graph.kind == parallel::MixingKind::kDoublyStochastic,
                "outer.graph ", graph.name,
                " does not keep the mean of the learners: some give more than they get; set "
                "outer.method = \"push-sum\"");
  if (outer.method == OuterMethod::kD2) parallel::graph_of_d2(graph);
}

void check_outer(const RunConfig& config) {
  const OuterConfig& outer = config.outer;
  const OuterConfig none;
  const bool is_diloco = outer.method == OuterMethod::kDiloco;
  TRIREME_CHECK(is_diloco || (outer.learning_rate == none.learning_rate &&
                              outer.momentum == none.momentum && outer.optimizer == none.optimizer),
                "outer.learning_rate, outer.momentum and outer.optimizer belong to outer.method = "
                "\"diloco\", which is \"",
                name_of(kOuterMethods, outer.method), "\"; leave them out");
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
  TRIREME_CHECK(num_ranks % learners == 0, "parallel.learners is ", learners,
                ", which does not divide the ", num_ranks, num_ranks == 1 ? " rank" : " ranks",
                "; start a multiple of it");
  for (const LearnerRule& rule : learner_rules(config)) {
    TRIREME_CHECK(!rule.is_set, "parallel.learners cannot be combined with ", rule.setting, ": ",
                  rule.reason, "; ", rule.remedy);
  }
  check_outer(config);
  if (!config.task) return;
  const TaskTraits task = config.task->traits();
  TRIREME_CHECK(!task.has_tables, "parallel.learners with the task ", config.task_choice.name,
                ", whose embedding tables learners do not exchange; set it to 1");
  TRIREME_CHECK(task.num_scores == 0, "parallel.learners with the task ", config.task_choice.name,
                ", whose samples are scored by all ranks before training; set it to 1");
}

}  // namespace trireme::train
