#include "trireme/train/config/server_rules.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/train/numerics/precision.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train::inline internal {
namespace {

// A setting that cannot be combined with servers.
struct ServerRule {
  std::string setting;
  bool is_set = false;
  std::string reason;
  std::string remedy;
};

std::vector<ServerRule> axis_rules(const ParallelConfig& parallel) {
  const std::string whole = "each worker has the whole model";
  return {
      {concat("parallel.tensor = ", parallel.tensor), parallel.tensor > 1, whole, "set it to 1"},
      {concat("parallel.pipeline = ", parallel.pipeline), parallel.pipeline > 1, whole,
       "set it to 1"},
      {concat("parallel.context = ", parallel.context), parallel.context > 1, whole, "set it to 1"},
      {concat("parallel.expert = ", parallel.expert), parallel.expert > 1, whole, "set it to 1"},
      {concat("parallel.zero = ", parallel.zero), parallel.zero > 0,
       "the servers hold the optimizer's states", "set it to 0"}};
}

// For all values of parallel.served.
std::vector<ServerRule> common_rules(const RunConfig& config) {
  return {{"parallel.auto", config.parallel.automatic, "the planner does not place servers",
           "set it to false"},
          {"train.reproducible", config.train.reproducible,
           "pushes are summed in the order of workers", "set it to false"}};
}

std::vector<ServerRule> train_rules(const TrainConfig& train, const ParallelConfig& parallel) {
  const bool is_synchronous = parallel.staleness == 0;
  const std::string apart = "workers are not in the same step";
  return {
      {concat("train.gradient_clip = ", train.gradient_clip),
       is_synchronous && train.gradient_clip > 0,
       "no server has the norm of all gradients, and parallel.staleness is 0",
       "set it to 0, or set parallel.staleness to another number: each worker then clips its own "
       "gradients"},
      {"train.precision = \"" + name_of(kPrecisions, train.precision) + "\"",
       train.precision != c10::kFloat && train.precision != c10::kDouble,
       "servers have no master weights", "set it to fp32 or fp64"},
      {"train.compression", train.compression != parallel::Compression::kNone,
       "pushes are not compressed", "set it to none"},
      {"train.uneven_batches", train.uneven_batches, "a worker might get no samples in a step",
       "set it to false"},
      {"train.skip_bad_steps", train.skip_bad_steps > 0, apart, "set it to 0"},
      {"train.spike_factor", train.spike_factor > 0, apart, "set it to 0"},
      {"train.measure_noise", train.measure_noise, apart, "set it to false"},
      {"train.check_replicas_interval", train.check_replicas_interval > 0, apart, "set it to 0"},
      {"train.evaluate_interval", train.evaluate_interval > 0, apart,
       "set it to 0, and evaluate a checkpoint"},
      {"train.device = \"cuda\"", train.device == DeviceChoice::kCuda,
       "servers and workers compute on CPUs", "set it to cpu"}};
}

std::vector<ServerRule> other_rules(const RunConfig& config) {
  std::vector<ServerRule> rules = {
      {concat("optimizer.name = \"", shown(config.optimizer.name), "\""),
       needs_whole_parameters(config.optimizer), "a server has pieces of parameters",
       "choose adamw, sgd or lion"},
      {"offload.optimizer", config.offload.optimizer != OffloadPlace::kNone,
       "the servers hold the optimizer's states", "set it to none"},
      {"data.skip_bad_samples", config.data.skip_bad_samples > 0,
       "workers do not exchange which samples are bad", "set it to 0"},
      {"checkpoint.memory_interval", config.checkpoint.memory_interval > 0, "only rank 0 saves",
       "set it to 0"},
      {"checkpoint.local", !config.checkpoint.local.empty(), "only rank 0 saves", "leave it out"}};
  for (const NamedCallback& named : config.callbacks) {
    rules.push_back({"the callback " + named.name, hears(named, config),
                     "callbacks expect all ranks in the same step", "switch it off"});
  }
  if (!config.task) return rules;
  const std::string task = "the task " + config.task_choice.name;
  rules.push_back({task, config.task->has_batch_norm(), "its batch norms share statistics",
                   "choose a model without them"});
  rules.push_back({task, config.task->num_counts() > 0, "its layers count over all ranks",
                   "choose a dense model"});
  return rules;
}

void check(const std::vector<ServerRule>& rules) {
  for (const ServerRule& rule : rules) {
    TRIREME_CHECK(!rule.is_set, "parallel.servers cannot be combined with ", rule.setting, ": ",
                  rule.reason, "; ", rule.remedy);
  }
}

}  // namespace

void check_servers(const RunConfig& config, int num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.servers == 0) {
    TRIREME_CHECK(
        parallel.served == Served::kAll && !parallel.host_sums && parallel.staleness == 0 &&
            parallel.server_copies == 1 && parallel.replay.empty(),
        "parallel.served is \"", name_of(kServed, parallel.served), "\", parallel.staleness ",
        parallel.staleness, ", parallel.server_copies ", parallel.server_copies,
        ", parallel.host_sums ", parallel.host_sums ? "true" : "false", " and parallel.replay \"",
        shown(parallel.replay),
        "\" without parallel.servers; set parallel.servers, such as to 2, or remove them");
    return;
  }
  TRIREME_CHECK(parallel.servers < num_ranks, "parallel.servers is ", parallel.servers, " of ",
                num_ranks, num_ranks == 1 ? " rank" : " ranks", ", which leaves no worker; start ",
                parallel.servers + 1, " ranks or more");
  TRIREME_CHECK(parallel.server_copies <= parallel.servers, "parallel.server_copies is ",
                parallel.server_copies, " with ", parallel.servers, " servers; expected at most ",
                parallel.servers);
  TRIREME_CHECK(parallel.replay.empty() || parallel.server_copies == 1, "parallel.replay with ",
                parallel.server_copies, " copies; set parallel.server_copies to 1");
  check(common_rules(config));
  TRIREME_CHECK(!parallel.host_sums || !config.task || !config.task->has_tables(),
                "parallel.host_sums with the task ", config.task_choice.name,
                ", whose ranks push their own rows; set it to false");
  if (parallel.served == Served::kTables) {
    TRIREME_CHECK(!config.task || config.task->has_tables(),
                  "parallel.served is \"tables\", and the task ", config.task_choice.name,
                  " has no tables; set it to all");
    return;
  }
  check(axis_rules(parallel));
  check(train_rules(config.train, parallel));
  check(other_rules(config));
}

}  // namespace trireme::train::inline internal
