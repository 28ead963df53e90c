#include "trireme/cli/plan/layout_search.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/learner_plan.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

std::string illegality(const train::RunConfig& run, const plan::Workload& work) {
  try {
    train::RunConfig config = with_layout(run, work);
    resolve_on(config, work.axes.num_ranks() * run.parallel.learners);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

void check_number_of_learners(const train::RunConfig& config) {
  TRIREME_CHECK(config.parallel.learners != 0,
                "parallel.learners is \"hosts\", and the cluster's hosts are not known here; give "
                "their number");
}

}  // namespace

plan::Workload resolve_on(train::RunConfig& config, int64_t num_devices) {
  TRIREME_CHECK(config.parallel.teachers == 0, "parallel.teachers is ", config.parallel.teachers,
                ", which the cost model does not know; set it to 0 to plan with the teacher on the "
                "ranks that train");
  check_number_of_learners(config);
  check_known_method(config);  // before the ranks are counted: of decoupled some are servers
  train::resolve(config, static_cast<int>(num_devices));
  train::check_layout(config);
  std::optional<plan::Workload> work = config.task->model().workload(config);
  TRIREME_CHECK(work.has_value(), "task.name is \"", config.task_choice.name,
                "\", whose models the cost model does not know; it knows those of the task "
                "\"language\"");
  plan::NumberSizes& sizes = work->sizes;
  sizes.outer = sizes.trained_share * outer_bytes_per_weight(config, sizes.wide);
  return *std::move(work);
}

void set_offload(const train::OffloadConfig& offload, plan::Workload& work,
                 plan::Cluster& cluster) {
  using enum train::OffloadPlace;
  const double host_rate = cluster.device.is_asynchronous ? kHostLinkRate : 0;
  const auto rate = [&](train::OffloadPlace place) {
    return place == kDisk ? cluster.device.disk_rate : place == kHost ? host_rate : 0;
  };
  work.input_offload_rate = rate(offload.activations);
  work.sizes.weight_offload_rate = rate(offload.parameters);
  work.sizes.gradient_offload_rate = rate(offload.gradients);
  work.sizes.weights_on_disk = offload.parameters == kDisk;
  work.sizes.gradients_on_disk = offload.gradients == kDisk;
  work.sizes.updated_by_host = cluster.device.is_asynchronous && offload.parameters != kNone;
  if (offload.optimizer != kHost || host_rate == 0 || work.sizes.updated_by_host) return;
  work.sizes.states_on_disk = true;
  cluster.device.disk_rate = kHostLinkRate;
}

plan::StageLayout runtime_stages(const train::RunConfig& config) {
  const train::PipelineLayout layout = train::pipeline_layout(config);
  return {.layers = layout.layers, .rank_of_stage = layout.rank_of_stage};
}

train::RunConfig with_layout(const train::RunConfig& run, std::span<const train::Override> chosen) {
  train::RunConfig config = run;
  config.parallel.automatic = false;
  config.parallel.shard = 0;
  config.parallel.stage_layers.clear();
  config.train.recompute_blocks = config.offload.activation_blocks = 0;
  train::override_keys(config, chosen);
  return config;
}

train::RunConfig with_layout(const train::RunConfig& run, const plan::Workload& work) {
  return with_layout(run, settings_of(work));
}

plan::SearchResult search_layouts(const train::RunConfig& run, plan::Cluster all,
                                  plan::SearchOptions options) {
  check_number_of_learners(run);
  const int64_t learners = run.parallel.learners;
  plan::Cluster cluster = cluster_of_learner(all, learners);
  TRIREME_CHECK(options.most_devices == 0 || options.most_devices >= learners, "--gpus-at-most is ",
                options.most_devices, " and parallel.learners ", learners,
                "; expected a device for each learner");
  options.most_devices /= learners;
  options.recompute_modules = run.train.recompute_modules;
  // Keys that are not searched are the same for one rank of each learner.
  train::RunConfig alone = with_layout(run, plan::Workload());
  alone.parallel.stage_memory = 0;
  TRIREME_CHECK(run.train.shares.empty(),
                "train.shares is for one number of data ranks, which a search of layouts varies; "
                "leave it out");
  // They need a stage that the search has yet to choose.
  alone.offload.parameters = alone.offload.gradients = train::OffloadPlace::kNone;
  if (run.offload.activations != train::OffloadPlace::kNone) {
    alone.train.recompute = model::Recompute::kFull;
    const auto fixed = options.fixed.find("recompute");
    TRIREME_CHECK(fixed == options.fixed.end() || fixed->second != "none",
                  "--fix recompute=none with offload.activations, which keeps the inputs of "
                  "recomputed modules; fix full or selective");
    options.must_recompute = true;
  }
  plan::Workload base = resolve_on(alone, learners);
  set_offload(run.offload, base, cluster);
  plan::SearchResult found = plan::search(
      base, cluster, options, [&](const plan::Workload& work) { return illegality(run, work); });
  for (plan::Plan& plan : found.best) {
    plan.step = predict_run(with_layout(run, plan.work), plan.work, all, plan.layout).step;
  }
  return found;
}

std::string describe_failure(const plan::SearchResult& found, const plan::Cluster& cluster) {
  if (found.num_illegal > 0) {
    return concat("none of the ", found.num_illegal,
                  " layouts that would be fastest can run. Of the first: ", found.refusal);
  }
  if (found.too_large.empty()) {
    return "no layout divides the batch and the model over these devices; change "
           "train.global_batch or what is fixed";
  }
  return concat("no layout fits: the smallest needs ",
                human_bytes(found.too_large.back().step.memory.total()), " per device, which have ",
                human_bytes(cluster.device.memory_bytes), "; use more devices or a smaller model");
}

}  // namespace trireme::cli
