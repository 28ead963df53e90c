// Checks a config's keys against each other, section by section.
#include <algorithm>
#include <bit>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/base/words.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/remote/http_client.h"
#include "trireme/remote/url.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/train_config.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/optimizer/parameter_groups.h"

namespace trireme::train {
namespace {

void check_precision(const TrainConfig& train) {
  const bool needs_masters = train.precision == c10::kHalf;
  TRIREME_CHECK(
      train.master_weights || !needs_masters,
      "train.master_weights is false with fp16, whose weights lose every small update; set "
      "it to true, or train.precision = \"bf16\" with train.stochastic_rounding = true");
  TRIREME_CHECK(
      !train.stochastic_rounding || (train.precision == c10::kBFloat16 && !train.master_weights),
      "train.stochastic_rounding is for bf16 weights without masters: set train.precision "
      "= \"bf16\" and train.master_weights = false, or leave it out");
  TRIREME_CHECK(train.fp32_products == Fp32Products::kFp32 || train.precision == c10::kFloat,
                "train.fp32_products is for train.precision = \"fp32\", which is \"",
                name_of(kPrecisions, train.precision), "\"; leave it out");
}

// The tree over microbatches is the same for every number of ranks if all its subtrees are full.
void check_reproducible(const RunConfig& config) {
  const auto is_power = [](int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); };
  const int64_t ranks = sample_ranks(config.parallel);
  const int64_t microbatches = config.microbatches_per_step();
  TRIREME_CHECK(!config.train.reproducible || (is_power(ranks) && is_power(microbatches)),
                "train.reproducible has ", ranks, " data ranks with ", microbatches,
                " microbatches each; both must be powers of two: choose train.global_batch and "
                "train.micro_batch accordingly");
}

// Fills in parallel.data and parallel.shard.
void resolve_ranks(ParallelConfig& parallel, int64_t learners, int num_ranks) {
  int64_t others = learners;
  std::string product = others > 1 ? "learners" : "";
  for (const AxisKey& key : kAxisKeys) {
    if (mesh::kind_of(key.axis).is_folded) continue;
    others = std::min(others * parallel.*key.size, int64_t{1} << 32);  // cannot overflow
    product += concat(product.empty() ? "" : " * ", key.axis);
  }
  if (parallel.data == 0) {
    TRIREME_CHECK(num_ranks % others == 0, "parallel: ", product, " is ", others,
                  ", which does not divide ", num_ranks, " ranks");
    parallel.data = num_ranks / others;
  }
  TRIREME_CHECK(parallel.data * others == num_ranks, "parallel: data * ", product, " is ",
                parallel.data * others, " but there are ", num_ranks,
                " ranks; set parallel.data = 0 or start with --ranks ", parallel.data * others);
  if (parallel.zero == 0) {
    TRIREME_CHECK(parallel.shard <= 1, "parallel.shard is ", parallel.shard,
                  " with parallel.zero = 0, which shards nothing; set zero to 1, 2 or 3, or "
                  "shard to 0");
    parallel.shard = 1;
  }
  if (parallel.shard == 0) parallel.shard = parallel.data;
  TRIREME_CHECK(parallel.data % parallel.shard == 0, "parallel.shard is ", parallel.shard,
                "; expected a divisor of the ", parallel.data, " data ranks, or 0 for all");
}

// Reads the shares of the data ranks. Call after resolve_ranks().
void resolve_shares(RunConfig& config) {
  const TrainConfig& train = config.train;
  const std::string key = train.shares_interval > 0 ? "train.shares_interval" : "train.shares";
  const auto refuse = [&](bool is_set, const char* what, const char* why) {
    TRIREME_CHECK(!is_set, key, " with ", what, ": ", why, "; set one of them to its default");
  };
  config.shares.clear();
  if (!config.may_have_shares() && train.shares.empty()) return;
  refuse(train.reproducible, "train.reproducible", "its tree needs microbatches of one size");
  refuse(train.measure_noise, "train.measure_noise", "it compares microbatches of one size");
  if (train.shares_interval > 0) {
    refuse(!train.shares.empty(), "train.shares", "a file repeats the shares of another run");
    refuse(config.data.skip_bad_samples > 0, "data.skip_bad_samples",
           "ranks then wait for each other's samples, and all seem equally slow");
    return;
  }
  config.shares = read_shares(train.shares);
  const int64_t ranks = sample_ranks(config.parallel);
  const int64_t found = std::ssize(config.shares.front().micro_batches);
  // The job began with as many, and goes on without those that it has lost.
  if (found != ranks && config.job_epoch > 1) return config.shares.clear();
  const std::string name = "train.shares " + shown(train.shares);
  TRIREME_CHECK(found == ranks, name, " is for ", found, " data ranks, and there are ", ranks,
                "; start with as many, or leave it out for equal shares");
  const int64_t samples = config.sequences_per_forward();
  TRIREME_CHECK(train.global_batch % samples == 0 || train.uneven_batches, name, " has ", samples,
                " samples per forward of all ranks, which do not divide train.global_batch = ",
                train.global_batch, "; set it to a multiple, such as ",
                (train.global_batch / samples + 1) * samples, ", or --train.uneven_batches=true");
}

std::string forward_in_words(const RunConfig& config) {
  return config.shares.empty() ? "train.micro_batch * data ranks"
                               : "the samples of train.shares per forward";
}

// Checks the batch of a step. Call after resolve_shares().
void check_batch(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const int64_t per_forward = config.sequences_per_forward();
  const bool is_even = config.is_even();
  TRIREME_CHECK(is_even || train.uneven_batches, "train.global_batch is ", train.global_batch,
                "; expected a multiple of train.micro_batch * data ranks",
                config.parallel.learners > 1 ? " of all learners" : "", " = ", train.micro_batch,
                " * ", sample_ranks(config.parallel) * config.parallel.learners, " = ", per_forward,
                ", such as ", (train.global_batch / per_forward + 1) * per_forward,
                ", or --train.uneven_batches=true, and some ranks have less to do");
  TRIREME_CHECK(train.shares_interval == 0 || is_even || config.job_epoch > 1,
                "train.shares_interval measures ranks that read their whole share; set "
                "train.global_batch to a multiple of train.micro_batch * data ranks = ",
                per_forward);
  TRIREME_CHECK(
      !train.measure_noise || is_even,
      "train.measure_noise compares microbatches of one size; set train.global_batch to a "
      "multiple of train.micro_batch * data ranks = ",
      per_forward);
  TRIREME_CHECK(!train.measure_noise || config.data.last_batch != dataset::LastBatch::kKeep,
                "train.measure_noise compares batches of one size, and data.last_batch is "
                "\"keep\"; set it to fill or drop");
  TRIREME_CHECK(!train.measure_noise || train.global_batch > train.micro_batch,
                "train.measure_noise compares the gradients of a step's microbatches, and there is "
                "only one; lower train.micro_batch, which is ",
                train.micro_batch);
}

// Call after check_batch().
void check_batch_ramp(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const int64_t first = train.batch_ramp_start;
  TRIREME_CHECK((first > 0) == (train.batch_ramp_steps > 0), "train.batch_ramp_start is ", first,
                " and train.batch_ramp_steps ", train.batch_ramp_steps,
                "; set both for a batch that grows, or neither");
  if (first == 0) return;
  const int64_t per_forward = config.sequences_per_forward();
  TRIREME_CHECK(train.global_batch % first == 0 && first % per_forward == 0,
                "train.batch_ramp_start is ", first,
                "; expected a divisor of train.global_batch = ", train.global_batch,
                " and a multiple of ", forward_in_words(config), " = ", per_forward);
  const auto refuse = [](bool is_set, const std::string& what, const char* why) {
    TRIREME_CHECK(!is_set, "train.batch_ramp_start with ", what, ": ", why,
                  "; set one of them to its default");
  };
  refuse(train.reproducible, "train.reproducible",
         "its tree needs a power of two of microbatches in every step");
  refuse(train.measure_noise, "train.measure_noise", "it compares batches of one size");
  refuse(config.data.last_batch != dataset::LastBatch::kFill,
         "data.last_batch = \"" + name_of(dataset::kLastBatches, config.data.last_batch) + "\"",
         "an epoch has no number of batches");
}

void check_offload(const RunConfig& config) {
  const OffloadConfig& offload = config.offload;
  const bool recomputes = config.train.recompute != model::Recompute::kNone;
  TRIREME_CHECK(offload.activations == OffloadPlace::kNone || recomputes,
                "offload.activations is \"", name_of(kOffloadPlaces, offload.activations),
                "\" and train.recompute \"none\"; what leaves memory are the inputs of recomputed "
                "modules: set train.recompute = \"full\", \"selective\" or \"auto\"");
  TRIREME_CHECK(offload.activation_blocks == 0 || offload.activations != OffloadPlace::kNone,
                "offload.activation_blocks is ", offload.activation_blocks,
                " and offload.activations \"none\"; set the one to 0, or the other to \"disk\" or "
                "\"host\"");
  TRIREME_CHECK(config.train.recompute_blocks == 0 || recomputes, "train.recompute_blocks is ",
                config.train.recompute_blocks,
                " and train.recompute \"none\"; set the one to 0, or the other to \"full\" or "
                "\"selective\"");
  const int64_t zero = config.parallel.zero;
  TRIREME_CHECK(offload.parameters == OffloadPlace::kNone || zero == 3, "offload.parameters is \"",
                name_of(kOffloadPlaces, offload.parameters), "\" and parallel.zero ", zero,
                "; other stages use whole parameters all the time: set parallel.zero = 3");
  TRIREME_CHECK(offload.gradients == OffloadPlace::kNone || zero >= 2, "offload.gradients is \"",
                name_of(kOffloadPlaces, offload.gradients), "\" and parallel.zero ", zero,
                "; other stages keep whole gradients: set parallel.zero = 2 or 3");
}

void check_train(const RunConfig& config) {
  const TrainConfig& train = config.train;
  check_precision(train);
  check_gradients(config);
  config.recompute_plan();
  check_offload(config);
  check_batch(config);
  check_batch_ramp(config);
  check_reproducible(config);
  TRIREME_CHECK(train.spike_factor == 0 || train.spike_factor > 1, "train.spike_factor is ",
                train.spike_factor, "; expected 0 (never) or above 1, such as 3");
}

void check_checkpoints(const CheckpointConfig& config) {
  if (!config.store.empty()) {
    try {
      const std::string& scheme = remote::parse_url(config.store).scheme;
      TRIREME_CHECK(scheme == "s3" || scheme == "gs", "a web server takes no files; expected ",
                    "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX");
      TRIREME_CHECK(!config.store.ends_with('/'), config.store, " ends in a slash; leave it out");
    } catch (const ConfigError& error) {
      throw ConfigError(concat("checkpoint.store: ", error.what()));
    }
  }
  TRIREME_CHECK(config.replicas == 0 || config.memory_interval > 0, "checkpoint.replicas is ",
                config.replicas,
                " without checkpoint.memory_interval; it counts copies of what is saved in memory: "
                "set checkpoint.memory_interval too, such as 5");
}

void check_tracking(const TrackingConfig& config) {
  if (config.mlflow.empty()) return;
  try {
    remote::check_server_url(config.mlflow);
  } catch (const ConfigError& error) {
    throw ConfigError(concat("tracking.mlflow: ", error.what()));
  }
  TRIREME_CHECK(remote::http_available(), "tracking.mlflow is ", config.mlflow,
                ", and this build lacks libcurl: install libcurl4-openssl-dev and build again, or "
                "leave it out and use `trireme track`");
  TRIREME_CHECK(!config.experiment.empty() && is_printable(config.experiment, 250),
                "tracking.experiment is ", shown(config.experiment),
                "; expected a name of 1 to 250 bytes without control characters");
}

// The metrics that an evaluation's line will have; none when the config does not evaluate.
std::vector<std::string> evaluated_metrics(const RunConfig& config) {
  if (config.train.evaluate_interval == 0) return {};
  std::vector<std::string> names = {"validation_loss", "loss", "grad_norm"};
  const TaskTraits task = config.task->traits();
  for (const std::string& set : task.validation_names) names.push_back("validation_loss." + set);
  for (const Metric& metric : task.metrics) {
    names.push_back(metric.name);
    names.push_back("validation_" + metric.name);
  }
  for (const std::string& name : task.evaluation_metrics) {
    names.push_back("validation_" + name);
  }
  for (const NamedCallback& named : config.callbacks) {
    if (hears(named, config))
      std::ranges::copy(named.callback->metric_names(), std::back_inserter(names));
  }
  return names;
}

void check_rates(const RunConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.schedule == RateSchedule::kConstant) return;
  const double peak =
      scaled_learning_rate(optimizer.learning_rate, optimizer.batch_scaling,
                           config.batch_sizes().of(/*step=*/0), optimizer.base_batch);
  TRIREME_CHECK(optimizer.minimum_learning_rate <= peak, "optimizer.minimum_learning_rate is ",
                optimizer.minimum_learning_rate, ", and the peak of the schedule ", peak,
                " (optimizer.learning_rate); expected at most that: lower the one or raise the "
                "other");
}

void check_init(const InitConfig& init) {
  const InitConfig none;
  TRIREME_CHECK(!init.folder.empty() || (init.names == none.names && init.missing == none.missing),
                "init.names is \"", shown(init.names), "\" and init.missing \"",
                shown(init.missing),
                "\" without init.folder, from which they take weights; set it, or leave them out");
}

}  // namespace

void resolve(RunConfig& config, int num_ranks) {
  if (const std::vector<std::string> keys = config.chosen_keys(); !keys.empty()) {
    throw ConfigError(concat(keys.front(),
                             " is \"auto\", which only the command `train` chooses; set it to ",
                             keys.front() == "train.micro_batch" ? "a number" : "another value"));
  }
  check_servers(config, num_ranks);
  const bool is_decoupled = config.parallel.learners > 1 && config.outer.is_decoupled();
  check_learners(config,
                 num_ranks - (is_decoupled ? static_cast<int>(config.parallel.servers) : 0));
  check_teachers(config, num_ranks);
  const int64_t others = config.parallel.servers + config.parallel.teachers;
  resolve_ranks(config.parallel, config.learners_here(), num_ranks - static_cast<int>(others));
  check_teacher_copies(config);
  resolve_shares(config);
  check_train(config);
  TRIREME_CHECK(
      !is_url(config.output.folder), "output.folder is ", config.output.folder,
      ", in a store; expected a folder: set checkpoint.store to keep checkpoints there too");
  check_checkpoints(config.checkpoint);
  check_tracking(config.tracking);
  parse_parameter_groups(config.optimizer.groups);
  check_rates(config);
  check_init(config.init);
  if (config.task) config.task->check(config);
}

void check_callbacks(const RunConfig& config) {
  const std::vector<std::string> metrics = evaluated_metrics(config);
  for (const NamedCallback& named : config.callbacks) {
    if (hears(named, config)) named.callback->check(config, metrics);
  }
}

}  // namespace trireme::train
