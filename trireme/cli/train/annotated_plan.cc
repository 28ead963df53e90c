#include "trireme/cli/train/annotated_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/plan/shard_arguments.h"
#include "trireme/plan/cost/device_seconds.h"
#include "trireme/plan/shard/shard_notes.h"
#include "trireme/train/annotated/note_text.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

std::vector<train::Override> keys_of(int64_t data, int64_t tensor, int64_t micro_batch,
                                     const std::string& recompute, const std::string& notes) {
  return {{"parallel.data", std::to_string(data)},
          {"parallel.tensor", std::to_string(tensor)},
          {"parallel.pipeline", "1"},
          {"parallel.context", "1"},
          {"parallel.expert", "1"},
          {"train.micro_batch", std::to_string(micro_batch)},
          {"train.recompute", recompute},
          {"parallel.notes", notes}};
}

std::string in_words(int64_t data, int64_t tensor) {
  return concat("data ", data, ", tensor ", tensor);
}

std::string recompute_of(const train::RunConfig& config) {
  const bool is_open = config.train.recompute == model::Recompute::kAuto;
  return std::string(
      name_of(model::kRecomputes, is_open ? model::Recompute::kNone : config.train.recompute));
}

// Gradients are summed over the data ranks once, after all microbatches.
double data_seconds(const AnnotatedPlan& found, const plan::ShardAxes& axes,
                    const plan::Cluster& cluster, int64_t data) {
  double bytes = 0;
  for (size_t i = 0; i < found.plan.parameters.size(); ++i) {
    bytes += found.graph.values[found.plan.parameters[i]].bytes() /
             num_blocks(axes, found.plan.splits[i]);
  }
  return all_reduce_seconds(cluster, {.ranks = data, .stride = axes.front().group.ranks}, bytes);
}

// One candidate, with the runtime's own checks.
AnnotatedChoice with_tensor_ranks(const train::AnnotatedTask& task, const train::RunConfig& run,
                                  const plan::Cluster& cluster, int64_t data, int64_t tensor) {
  const int64_t batch = run.train.global_batch;
  const int64_t micro_batch =
      run.train.micro_batch > 0 ? run.train.micro_batch : (batch + data - 1) / data;
  const auto candidate = [&](const std::string& notes) {
    auto keys = keys_of(data, tensor, micro_batch, recompute_of(run), notes);
    train::RunConfig config = with_layout(run, keys);
    train::resolve(config, static_cast<int>(data * tensor));
    train::check_layout(config);
    return std::make_pair(std::move(keys), std::move(config));
  };
  const train::RunConfig config = candidate("").second;
  const plan::ShardOptions options =
      shard_options(cluster, {{"tensor", {.ranks = tensor, .stride = 1}}}, config.dtype());
  const AnnotatedPlan found = plan_annotated(task, config, options, micro_batch);
  const auto forwards = static_cast<double>(config.microbatches_per_step());
  return {.keys = candidate(tensor > 1 ? found.notes : "").first,
          .what = in_words(data, tensor),
          .step_seconds = forwards * (found.step_seconds - found.plan.update_seconds) +
                          found.plan.update_seconds +
                          data_seconds(found, options.axes, cluster, data),
          .kept_bytes = found.plan.kept_bytes};
}

}  // namespace

const train::AnnotatedTask* annotated_task_of(const train::RunConfig& config) {
  return config.task ? dynamic_cast<const train::AnnotatedTask*>(&*config.task) : nullptr;
}

AnnotatedPlan plan_annotated(const train::AnnotatedTask& task, const train::RunConfig& config,
                             const plan::ShardOptions& options, int64_t samples) {
  const spmd::Annotations own = task.annotations();
  AnnotatedPlan found{.graph = task.trace(config, samples)};
  plan::ShardOptions with_fixed = options;
  with_fixed.fixed = plan::fixed_splits(found.graph, options.axes, own);
  found.plan = plan_shards(found.graph, with_fixed);
  const plan::Device& device = options.cluster.device;
  found.step_seconds = found.plan.seconds;
  if (!device.is_asynchronous)
    found.step_seconds += static_cast<double>(found.graph.nodes.size()) * device.launch_seconds;
  found.annotations = plan::notes_of(found.graph, found.plan, options.axes, own);
  found.notes = train::note_text(found.annotations, own);
  return found;
}

AnnotatedChoice choose_annotated(const train::RunConfig& config, const plan::Cluster& cluster,
                                 int num_ranks) {
  const train::AnnotatedTask& task = *annotated_task_of(config);
  std::optional<AnnotatedChoice> best;
  std::string refusal;
  int num_candidates = 0;
  for (int64_t tensor = 1; tensor <= num_ranks; ++tensor) {
    if (num_ranks % tensor != 0) continue;
    try {
      AnnotatedChoice choice = with_tensor_ranks(task, config, cluster, num_ranks / tensor, tensor);
      ++num_candidates;
      if (!best || choice.step_seconds < best->step_seconds) best = std::move(choice);
    } catch (const ConfigError& error) {
      if (refusal.empty()) refusal = error.what();
    }
  }
  TRIREME_CHECK(best.has_value(),
                "parallel.auto: none of the layouts of data and tensor ranks can ",
                "run. Of the first: ", refusal);
  best->num_candidates = num_candidates;
  return *std::move(best);
}

AnnotatedChoice annotated_choice_of(const train::RunConfig& begun) {
  const train::AnnotatedTask& task = *annotated_task_of(begun);
  return {.keys = keys_of(begun.parallel.data, begun.parallel.tensor, begun.train.micro_batch,
                          recompute_of(begun), task.notes()),
          .what = in_words(begun.parallel.data, begun.parallel.tensor)};
}

}  // namespace trireme::cli
