// What a config with parameter servers must be.
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/setting_rules.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

constexpr const char* kNotWithServers = "parallel.servers cannot be combined with";
constexpr const char* kWorkersApart = "workers are not in the same step";

std::vector<SettingRule> axis_rules(const ParallelConfig& parallel) {
  std::vector<SettingRule> rules;
  for (const AxisKey& key : kAxisKeys) {
    const int64_t size = parallel.*key.size;
    rules.push_back({concat("parallel.", key.axis, " = ", size), size > 1,
                     "each worker has the whole model", "set it to 1"});
  }
  rules.push_back({concat("parallel.zero = ", parallel.zero), parallel.zero > 0,
                   "the servers hold the optimizer's states", "set it to 0"});
  return rules;
}

// For all values of parallel.served.
std::vector<SettingRule> common_rules(const RunConfig& config) {
  return {{"parallel.auto", config.parallel.automatic, "the planner does not place servers",
           "set it to false"},
          {"train.reproducible", config.train.reproducible,
           "pushes are summed in the order of workers", "set it to false"}};
}

std::vector<SettingRule> train_rules(const TrainConfig& train, const ParallelConfig& parallel) {
  const bool is_synchronous = parallel.staleness == 0;
  const std::string apart = kWorkersApart;
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
      {"parallel.gradient_order = \"rank-first\"",
       parallel.gradient_order == GradientOrder::kRankFirst,
       "a worker pushes the sum of its microbatches", "leave it out"},
      {"train.uneven_batches", train.uneven_batches, "a worker might get no samples in a step",
       "set it to false"},
      {"train.batch_ramp_start", train.batch_ramp_start > 0, apart, "set it to 0"},
      {"train.check_replicas_interval", train.check_replicas_interval > 0, apart, "set it to 0"},
      {"train.evaluate_interval", train.evaluate_interval > 0, apart,
       "set it to 0, and evaluate a checkpoint"},
      {"train.device = \"cuda\"", train.device == DeviceChoice::kCuda,
       "servers and workers compute on CPUs", "set it to cpu"}};
}

std::vector<SettingRule> other_rules(const RunConfig& config) {
  return {
      {concat("optimizer.name = \"", shown(config.optimizer.name), "\""),
       needs_whole_parameters(config.optimizer), "a server has pieces of parameters",
       concat("choose ", optimizers_in_words(/*need_whole_parameters=*/false))},
      {concat("optimizer.state_dtype = \"", name_of(kStateDtypes, config.optimizer.state_dtype),
              "\""),
       config.optimizer.state_dtype != StateDtype::kFp32, "servers keep states in fp32",
       "set it to fp32"},
      {"offload.activations", config.offload.activations != OffloadPlace::kNone,
       "the workers of a host share its disk", "set it to none"},
      {"offload.optimizer", config.offload.optimizer != OffloadPlace::kNone,
       "the servers hold the optimizer's states", "set it to none"},
      {"data.skip_bad_samples", config.data.skip_bad_samples > 0,
       "workers do not exchange which samples are bad", "set it to 0"},
      {"checkpoint.memory_interval", config.checkpoint.memory_interval > 0, "only rank 0 saves",
       "set it to 0"},
      {"checkpoint.local", !config.checkpoint.local.empty(), "only rank 0 saves", "leave it out"}};
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
        "\" without parallel.servers; set parallel.servers, for example to 2, or remove them");
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
  if (parallel.learners > 1) return;  // see check_learners()
  refuse_settings(kNotWithServers, common_rules(config));
  TRIREME_CHECK(!parallel.host_sums || !config.task || !config.task->traits().has_tables,
                "parallel.host_sums with the task ", config.task_choice.name,
                ", whose ranks push their own rows; set it to false");
  if (parallel.served == Served::kTables) {
    TRIREME_CHECK(!config.task || config.task->traits().has_tables,
                  "parallel.served is \"tables\", and the task ", config.task_choice.name,
                  " has no tables; set it to all");
    return;
  }
  refuse_settings(kNotWithServers, axis_rules(parallel));
  refuse_settings(kNotWithServers, train_rules(config.train, parallel));
  refuse_settings(kNotWithServers, rules_of_ranks_apart(config, kWorkersApart));
  refuse_settings(kNotWithServers, other_rules(config));
}

void check_served_model(const RunConfig& config) {
  if (config.parallel.servers == 0 || config.parallel.served == Served::kTables) return;
  const ModelTraits model = config.task->model().traits();
  const std::string task = "the task " + config.task_choice.name;
  const SettingRule rules[] = {
      {task, model.has_batch_norm, "its batch norms share statistics",
       "choose a model without them"},
      {task, model.num_counts > 0, "its layers count over all ranks", "choose a dense model"}};
  refuse_settings(kNotWithServers, rules);
}

}  // namespace trireme::train
