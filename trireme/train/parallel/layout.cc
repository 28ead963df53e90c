#include "trireme/train/parallel/layout.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train::inline internal {
namespace {

bool keeps_compression_state(const TrainConfig& train) {
  return parallel::keeps_residual(train.compression) ||
         (train.compression != parallel::Compression::kNone && train.compression_warmup > 0);
}

std::vector<int> parse_counts(std::string_view text) {
  std::vector<int> counts;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int count = 0;
    const auto [rest, error] = std::from_chars(at, end, count);
    const bool is_number = error == std::errc() && (rest == end || *rest == ',');
    TRIREME_CHECK(is_number, "parallel.stage_layers is \"", text,
                  "\"; expected numbers of layers separated by commas, such as \"3,3\"");
    counts.push_back(count);
    at = rest == end ? end : rest + 1;
  }
  return counts;
}

// The counts in parallel.stage_layers; empty: layers are split by cost.
std::vector<int> counts_by_hand(const RunConfig& config, int64_t num_layers, int num_stages) {
  if (config.parallel.stage_layers.empty()) return {};
  std::vector<int> counts = parse_counts(config.parallel.stage_layers);
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  const bool are_positive = std::ranges::all_of(counts, [](int count) { return count > 0; });
  TRIREME_CHECK(std::ssize(counts) == num_stages && sum == num_layers && are_positive,
                "parallel.stage_layers is \"", config.parallel.stage_layers, "\"; expected ",
                num_stages, " numbers above 0, one per stage, that sum to the ", num_layers,
                " layers of the model");
  return counts;
}

std::vector<int> layers_of(const RunConfig& config, std::span<const parallel::LayerCost> costs,
                           const parallel::SplitOptions& options) {
  TRIREME_CHECK(std::ssize(costs) >= options.num_stages, "the model has ", std::ssize(costs),
                " layers and parallel.schedule \"", config.parallel.schedule, "\" on ",
                config.parallel.pipeline, " ranks has ", options.num_stages,
                " stages, each of at least one; lower parallel.pipeline or "
                "parallel.stages_per_rank");
  const std::vector<int> by_hand = counts_by_hand(config, std::ssize(costs), options.num_stages);
  try {
    return by_hand.empty() ? parallel::split_layers(costs, options)
                           : parallel::split_by_hand(by_hand, costs, options);
  } catch (const ConfigError& error) {
    throw ConfigError(concat("parallel.stage_memory is ", config.parallel.stage_memory,
                             " bytes per rank: ", error.what()));
  }
}

// "adafactor, muon, lamb or lars".
std::string whole_matrix_optimizers() {
  std::vector<std::string> names = optimizer_names();
  std::erase_if(names,
                [](const std::string& name) { return !needs_whole_parameters({.name = name}); });
  return in_words(names);
}

// One microbatch of the schedule, to find out its stages and their ranks.
parallel::Schedule example_schedule(const std::string& name, const ParallelConfig& config) {
  const int chunks = config.pipeline == 1 ? 1 : static_cast<int>(config.stages_per_rank);
  try {
    return parallel::make_schedule(
        name, {.num_ranks = static_cast<int>(config.pipeline), .num_chunks = chunks});
  } catch (const ConfigError& error) {
    if (chunks == 0) throw;
    throw ConfigError(concat("parallel.stages_per_rank: ", error.what()));
  }
}

// Of its own, so that a layer's calls keep their order whatever the gradients' buckets do.
comm::Communicator* batch_group_of(const RunConfig& config, const mesh::DeviceMesh& mesh) {
  constexpr std::string_view kAxes[] = {"data", "shard"};
  const bool is_needed = config.task->has_batch_norm() || config.task->has_tables();
  return is_needed ? &mesh.joined_group(kAxes) : nullptr;
}

}  // namespace

std::vector<mesh::Axis> mesh_axes(const ParallelConfig& parallel) {
  const auto axis = [](const char* name, int64_t size) {
    return mesh::Axis{name, static_cast<int>(size)};
  };
  return {axis("pipeline", parallel.pipeline), axis("data", parallel.data / parallel.shard),
          axis("shard", parallel.shard), axis("context", parallel.context),
          axis("tensor", parallel.tensor)};
}

std::vector<mesh::Axis> expert_mesh_axes(const ParallelConfig& parallel) {
  const auto axis = [](const char* name, int64_t size) {
    return mesh::Axis{name, static_cast<int>(size)};
  };
  return {axis("pipeline", parallel.pipeline),
          axis("data", parallel.data * parallel.context / parallel.expert),
          axis("expert", parallel.expert), axis("tensor", parallel.tensor)};
}

comm::Communicator& shard_group_of(const mesh::DeviceMesh& mesh) {
  constexpr std::string_view kAxes[] = {"shard", "context"};
  return mesh.size("context") > 1 ? mesh.joined_group(kAxes) : mesh.group("shard");
}

model::ModelAxes model_axes(const RunConfig& config, const mesh::DeviceMesh& mesh,
                            std::shared_ptr<const bool> overlap) {
  return {.tensor = {.group = &mesh.group("tensor"),
                     .sequence = config.parallel.sequence_parallel,
                     .overlap = std::move(overlap),
                     .symmetric = config.train.symmetric_memory},
          .context = mesh.size("context") > 1 ? &mesh.group("context") : nullptr,
          .context_form = config.parallel.context_form,
          .ring = {.overlap = config.train.overlap, .symmetric = config.train.symmetric_memory},
          .batch = {.group = batch_group_of(config, mesh)},
          .expert = {.chunk_tokens = config.parallel.expert_chunk,
                     .replicas = config.parallel.expert_replicas,
                     .symmetric = config.train.symmetric_memory}};
}

model::ModelPart PipelineLayout::part(int stage) const {
  const auto at = static_cast<size_t>(stage);
  return {.first_layer = std::accumulate(layers.begin(), layers.begin() + stage, int64_t{0}),
          .num_layers = layers[at],
          .embeds = stage == 0,
          .has_head = stage + 1 == num_stages()};
}

parallel::Schedule PipelineLayout::schedule(int64_t num_microbatches) const {
  return parallel::make_schedule(name, {.num_ranks = num_ranks,
                                        .num_microbatches = static_cast<int>(num_microbatches),
                                        .num_chunks = num_stages() / num_ranks});
}

PipelineLayout pipeline_layout(const RunConfig& config) {
  // One rank has nothing to schedule.
  PipelineLayout layout{.name = config.parallel.pipeline == 1 ? "1f1b" : config.parallel.schedule,
                        .num_ranks = static_cast<int>(config.parallel.pipeline)};
  const parallel::Schedule example = example_schedule(layout.name, config.parallel);
  layout.rank_of_stage = example.rank_of_stage;
  layout.costs = config.task->layer_costs(config);
  layout.split = config.parallel.stage_memory > 0
                     ? split_options(config, layout.schedule(config.microbatches_per_step()))
                     : parallel::SplitOptions{.num_stages = layout.num_stages()};
  layout.layers = layers_of(config, layout.costs, layout.split);
  return layout;
}

std::string describe_layout(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  std::string text = concat("data ", parallel.data);
  if (parallel.servers > 0) {
    const std::string apart = parallel.staleness < 0    ? "asynchronous"
                              : parallel.staleness == 0 ? "synchronous"
                                                        : concat("staleness ", parallel.staleness);
    const char* const what = parallel.served == Served::kTables ? "of tables " : "";
    text += concat(" + servers ", what, parallel.servers, " (", apart, ")");
  }
  if (parallel.tensor > 1) {
    text += concat(" x tensor ", parallel.tensor,
                   parallel.sequence_parallel ? " (sequence parallel)" : "");
  }
  if (parallel.context > 1) {
    text += concat(" x context ", parallel.context, " (",
                   name_of(parallel::kContextForms, parallel.context_form), ")");
  }
  if (parallel.expert > 1) text += concat(" x expert ", parallel.expert, " (of these)");
  if (parallel.pipeline == 1) return text;
  text += concat(" x pipeline ", parallel.pipeline, " (", parallel.schedule, ", layers ");
  const PipelineLayout layout = pipeline_layout(config);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    text += concat(i == 0 ? "" : "+", layout.layers[i]);
  }
  return text + ")";
}

bool tensor_crosses_hosts(std::span<const std::string> hosts, int tensor_ranks) {
  for (size_t rank = 1; rank < hosts.size(); ++rank) {
    const bool in_one_group = rank % static_cast<size_t>(tensor_ranks) != 0;
    if (in_one_group && hosts[rank] != hosts[rank - 1]) return true;
  }
  return false;
}

std::vector<LayoutRule> layout_rules() {
  using Axes = std::vector<std::string>;
  return {
      {concat("optimizer.name = ", whole_matrix_optimizers()), Axes{"tensor"},
       [](const RunConfig& c) { return needs_whole_parameters(c.optimizer); },
       "they work on whole matrices, and each rank has a part", "use adamw, sgd or lion"},
      {"train.stochastic_rounding", Axes{"tensor"},
       [](const RunConfig& c) { return c.train.stochastic_rounding; },
       "its random numbers are drawn for whole rows", "keep master weights"},
      {"train.reproducible", Axes{"context", "expert"},
       [](const RunConfig& c) { return c.train.reproducible; },
       "its tree is over the whole sequences of each rank", "set it to false"},
      {"train.measure_noise", Axes{"tensor", "context", "expert", "pipeline"},
       [](const RunConfig& c) { return c.train.measure_noise; },
       "it compares gradients of whole models", "measure it with data parallelism only"},
      {"train.compression with state (powersgd, topk, or any with a warm-up)",
       Axes{"tensor", "expert", "pipeline"},
       [](const RunConfig& c) { return keeps_compression_state(c.train); },
       "its state covers whole models", "use bf16, fp16 or int8 without warm-up"},
  };
}

void check_layout(const RunConfig& config) {
  const ParallelConfig& axes = config.parallel;
  const std::pair<std::string_view, int64_t> sizes[] = {{"tensor", axes.tensor},
                                                        {"context", axes.context},
                                                        {"expert", axes.expert},
                                                        {"pipeline", axes.pipeline}};
  for (const LayoutRule& rule : layout_rules()) {
    for (const auto& [axis, size] : sizes) {
      const bool is_against = std::ranges::count(rule.axes, axis) > 0 && size > 1;
      TRIREME_CHECK(!is_against || !rule.is_used(config), rule.feature, " with parallel.", axis,
                    " = ", size, ": ", rule.reason, "; ", rule.remedy, ", or set parallel.", axis,
                    " = 1");
    }
  }
  const std::vector<std::string> possible = config.task->axes();
  for (const auto& [axis, size] : sizes) {
    TRIREME_CHECK(size == 1 || std::ranges::count(possible, axis) > 0, "parallel.", axis, " is ",
                  size, ", and the model of task ", config.task_choice.name,
                  " has no plan for it; set it to 1");
  }
  TRIREME_CHECK((axes.data * axes.context) % axes.expert == 0, "parallel.expert is ", axes.expert,
                "; expected a divisor of the ", axes.data * axes.context,
                " ranks with other tokens (data * context), which share out the experts");
  config.task->check_layout(config);
  pipeline_layout(config);
}

}  // namespace trireme::train::inline internal
