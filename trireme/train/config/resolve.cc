// Checks a config's keys against each other, section by section.
#include <bit>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/server_rules.h"
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
}

// The tree over microbatches is the same for every number of ranks if all its subtrees are full.
void check_reproducible(const RunConfig& config) {
  const auto is_power = [](int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); };
  const int64_t ranks = config.parallel.data, microbatches = config.microbatches_per_step();
  TRIREME_CHECK(!config.train.reproducible || (is_power(ranks) && is_power(microbatches)),
                "train.reproducible has ", ranks, " data ranks with ", microbatches,
                " microbatches each; both must be powers of two: choose train.global_batch and "
                "train.micro_batch accordingly");
}

// Fills in parallel.data and parallel.shard.
void resolve_ranks(ParallelConfig& parallel, int num_ranks) {
  const int64_t others = parallel.tensor * parallel.pipeline * parallel.context;
  if (parallel.data == 0) {
    TRIREME_CHECK(num_ranks % others == 0, "parallel: tensor * pipeline * context is ", others,
                  ", which does not divide ", num_ranks, " ranks");
    parallel.data = num_ranks / others;
  }
  TRIREME_CHECK(parallel.data * others == num_ranks,
                "parallel: data * tensor * pipeline * context is ", parallel.data * others,
                " but there are ", num_ranks,
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

// Call after resolve_ranks().
void check_compression(const TrainConfig& train, const ParallelConfig& parallel) {
  if (train.compression == parallel::Compression::kNone) return;
  const std::string compression = name_of(parallel::kCompressions, train.compression);
  TRIREME_CHECK(!train.reproducible, "train.compression is \"", compression,
                "\" with train.reproducible, which sums in another order; set one of them to its "
                "default");
  TRIREME_CHECK(parallel.zero == 0 || parallel.shard == parallel.data, "train.compression is \"",
                compression, "\" with parallel.shard = ", parallel.shard, " of ", parallel.data,
                " data ranks; it sums over all of them at once: set parallel.shard = 0");
  const bool has_residual = parallel::keeps_residual(train.compression);
  TRIREME_CHECK(!has_residual || train.precision != c10::kHalf, "train.compression is \"",
                compression,
                "\" with train.precision = \"fp16\", whose loss scale changes what a residual "
                "means; use bf16");
  TRIREME_CHECK(!has_residual || train.skip_bad_steps == 0, "train.compression is \"", compression,
                "\" with train.skip_bad_steps; a residual takes up the gradient of a step that is "
                "skipped: set one of them to its default");
  TRIREME_CHECK(!has_residual || !train.measure_noise, "train.compression is \"", compression,
                "\" with train.measure_noise, which compares gradients with their sum; measure "
                "without compression");
}

// Checks the batch of a step. Call after resolve_ranks().
void check_batch(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const int64_t per_forward = config.sequences_per_forward();
  const bool is_even = config.is_even();
  TRIREME_CHECK(is_even || train.uneven_batches, "train.global_batch is ", train.global_batch,
                "; expected a multiple of train.micro_batch * data ranks = ", train.micro_batch,
                " * ", config.parallel.data, " = ", per_forward, ", such as ",
                (train.global_batch / per_forward + 1) * per_forward,
                ", or --train.uneven_batches=true, and some ranks have less to do");
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

void check_train(const RunConfig& config) {
  const TrainConfig& train = config.train;
  check_precision(train);
  check_compression(train, config.parallel);
  model::recompute_plan(train.recompute, train.recompute_modules);
  check_batch(config);
  check_reproducible(config);
  TRIREME_CHECK(train.spike_factor == 0 || train.spike_factor > 1, "train.spike_factor is ",
                train.spike_factor, "; expected 0 (never) or above 1, such as 3");
}

void check_checkpoints(const CheckpointConfig& config) {
  TRIREME_CHECK(config.replicas == 0 || config.memory_interval > 0, "checkpoint.replicas is ",
                config.replicas,
                " without checkpoint.memory_interval; it counts copies of what is saved in memory: "
                "set checkpoint.memory_interval too, such as 5");
}

// The metrics that an evaluation's line will have; none when the config does not evaluate.
std::vector<std::string> evaluated_metrics(const RunConfig& config) {
  if (config.train.evaluate_interval == 0) return {};
  std::vector<std::string> names = {"validation_loss", "loss", "grad_norm"};
  for (const Metric& metric : config.task->metrics()) {
    names.push_back(metric.name);
    names.push_back("validation_" + metric.name);
  }
  for (const std::string& name : config.task->evaluation_metrics()) {
    names.push_back("validation_" + name);
  }
  for (const NamedCallback& named : config.callbacks) {
    if (hears(named, config))
      std::ranges::copy(named.callback->metric_names(), std::back_inserter(names));
  }
  return names;
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
  check_servers(config, num_ranks);
  resolve_ranks(config.parallel, num_ranks - static_cast<int>(config.parallel.servers));
  check_train(config);
  check_checkpoints(config.checkpoint);
  parse_parameter_groups(config.optimizer.groups);
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
