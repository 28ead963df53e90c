#include "trireme/train/parallel/run_layout.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/train/config/config.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

using mesh::AxisKind;
using mesh::Tokens;
using mesh::Weights;

mesh::Axis axis_of(std::string_view name, int64_t size) {
  return {std::string(name), static_cast<int>(size)};
}

// The ranks of the config along a mesh's axis.
int64_t size_of(const ParallelConfig& parallel, std::string_view axis) {
  if (axis == "data") return parallel.data / parallel.shard;
  if (axis == "shard") return parallel.shard;
  const auto* const found = std::ranges::find(kAxisKeys, axis, &AxisKey::axis);
  TRIREME_ASSERT(found != std::end(kAxisKeys), "axis ", axis, " has no key");
  return parallel.*found->size;
}

// What describe_layout() says of an axis beside its size.
std::string note_on(const RunConfig& config, std::string_view axis) {
  const ParallelConfig& parallel = config.parallel;
  if (axis == "tensor") return parallel.sequence_parallel ? " (sequence parallel)" : "";
  if (axis == "context") {
    return concat(" (", name_of(parallel::kContextForms, parallel.context_form), ")");
  }
  if (mesh::kind_of(axis).is_folded) return " (of these)";
  if (axis != "pipeline") return "";
  std::string layers;
  for (const int count : pipeline_layout(config).layers) {
    layers += concat(layers.empty() ? "" : "+", count);
  }
  return concat(" (", parallel.schedule, ", layers ", layers, ")");
}

// Whether the axis asks nothing of a model: each of its ranks has all that one rank would have.
bool replicates_model(std::string_view axis) {
  const AxisKind& kind = mesh::kind_of(axis);
  return kind.tokens == Tokens::kOtherSamples && kind.weights == Weights::kSame;
}

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

// A separate group, so that the order of a layer's calls does not depend on gradient buckets.
comm::Communicator* batch_group_of(const RunConfig& config, const mesh::DeviceMesh& mesh) {
  const bool is_needed =
      config.task->traits().has_tables || config.task->model().traits().has_batch_norm;
  return is_needed ? &mesh.joined_group(sample_axes()) : nullptr;
}

}  // namespace

std::vector<mesh::Axis> mesh_axes(const ParallelConfig& parallel) {
  std::vector<mesh::Axis> axes;
  for (const AxisKind& kind : mesh::kAxisKinds) {
    if (!kind.is_folded) axes.push_back(axis_of(kind.name, size_of(parallel, kind.name)));
  }
  return axes;
}

std::vector<mesh::Axis> expert_mesh_axes(const ParallelConfig& parallel) {
  int64_t with_other_tokens = 1;
  std::vector<mesh::Axis> axes;
  for (const AxisKind& kind : mesh::kAxisKinds) {
    const int64_t size = size_of(parallel, kind.name);
    if (kind.name == "expert") {
      axes.push_back(axis_of("data", with_other_tokens / size));
      axes.push_back(axis_of(kind.name, size));
    } else if (kind.tokens == Tokens::kSame) {
      axes.push_back(axis_of(kind.name, size));
    } else {
      with_other_tokens *= size;
    }
  }
  return axes;
}

comm::Communicator& shard_group_of(const mesh::DeviceMesh& mesh) {
  return group_of(mesh, mesh::axes_where([](const AxisKind& kind) { return kind.shares_states; }),
                  "shard");
}

std::vector<std::string_view> replica_axes(int64_t zero) {
  return mesh::axes_where([zero](const AxisKind& kind) {
    return kind.weights == Weights::kSame && (zero == 0 || !kind.shares_states);
  });
}

comm::Communicator& group_of(const mesh::DeviceMesh& mesh, std::span<const std::string_view> axes,
                             std::string_view fallback) {
  std::vector<std::string_view> long_ones;
  for (const std::string_view axis : axes) {
    if (axis == fallback || mesh.size(axis) > 1) long_ones.push_back(axis);
  }
  return mesh.joined_group(long_ones);
}

std::vector<std::string_view> cutting_axes() {
  return mesh::axes_where(
      [](const AxisKind& kind) { return kind.weights == Weights::kParts && !kind.is_folded; });
}

std::vector<std::string_view> sample_axes() {
  return mesh::axes_where(
      [](const AxisKind& kind) { return kind.tokens == Tokens::kOtherSamples && !kind.is_folded; });
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

std::vector<model::ModelPart> PipelineLayout::parts() const {
  std::vector<model::ModelPart> parts;
  for (int stage = 0; stage < num_stages(); ++stage) parts.push_back(part(stage));
  return parts;
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
  layout.costs = config.task->model().layer_costs(config);
  layout.split = config.parallel.stage_memory > 0
                     ? split_options(config, layout.schedule(config.microbatches_per_step()))
                     : parallel::SplitOptions{.num_stages = layout.num_stages()};
  layout.layers = layers_of(config, layout.costs, layout.split);
  return layout;
}

std::string describe_layout(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t quorum = config.outer.quorum > 0 ? config.outer.quorum : parallel.learners;
  std::string text;
  if (parallel.learners > 1) {
    const bool has_quorum = config.outer.is_decoupled() && config.outer.meets();
    text = concat("learners ", parallel.learners, " (", name_of(kOuterMethods, config.outer.method),
                  " every ", config.outer.every, " steps",
                  has_quorum ? concat(", quorum ", quorum) : "", ") x ");
  }
  text += concat("data ", parallel.data);
  if (parallel.servers > 0) {
    const std::string apart = parallel.learners > 1     ? concat("quorum ", quorum)
                              : parallel.staleness < 0  ? "asynchronous"
                              : parallel.staleness == 0 ? "synchronous"
                                                        : concat("staleness ", parallel.staleness);
    const char* const what = parallel.served == Served::kTables ? "of tables " : "";
    text += concat(" + servers ", what, parallel.servers, " (", apart, ")");
  }
  if (parallel.teachers > 0) {
    text += concat(" + teachers ", parallel.teachers);
    if (parallel.teacher_tensor > 1) text += concat(" (tensor ", parallel.teacher_tensor, ")");
  }
  for (const AxisKey& key : kAxisKeys) {
    const int64_t size = parallel.*key.size;
    if (size > 1) text += concat(" x ", key.axis, ' ', size, note_on(config, key.axis));
  }
  return text;
}

bool tensor_crosses_hosts(std::span<const std::string> hosts, int tensor_ranks) {
  for (size_t rank = 1; rank < hosts.size(); ++rank) {
    const bool in_one_group = rank % static_cast<size_t>(tensor_ranks) != 0;
    if (in_one_group && hosts[rank] != hosts[rank - 1]) return true;
  }
  return false;
}

std::vector<LayoutRule> layout_rules() {
  const auto names_of = [](const std::vector<std::string_view>& axes) {
    return std::vector<std::string>(axes.begin(), axes.end());
  };
  const auto against = [&](bool (*is_against)(const AxisKind&)) {
    return names_of(mesh::axes_where(is_against));
  };
  const std::vector<std::string> cutting = names_of(cutting_axes());
  return {
      {concat("optimizer.name = ", optimizers_in_words(/*need_whole_parameters=*/true)), cutting,
       [](const RunConfig& c) { return needs_whole_parameters(c.optimizer); },
       "they work on whole matrices, and each rank has a part",
       concat("use ", optimizers_in_words(/*need_whole_parameters=*/false))},
      {"train.reproducible", against([](const AxisKind& kind) {
         return kind.tokens == Tokens::kOtherParts || kind.is_folded;
       }),
       [](const RunConfig& c) { return c.train.reproducible; },
       "its tree is over the whole sequences of each rank", "set it to false"},
      {"train.measure_noise", against([](const AxisKind& kind) {
         return kind.tokens != Tokens::kOtherSamples || kind.weights != Weights::kSame;
       }),
       [](const RunConfig& c) { return c.train.measure_noise; },
       "it compares gradients of whole models", "measure it with data parallelism only"},
      {"train.compression with state (powersgd, topk, or any with a warm-up)",
       against([](const AxisKind& kind) { return kind.weights != Weights::kSame; }),
       [](const RunConfig& c) { return keeps_compression_state(c.train); },
       "its state covers whole models", "use bf16, fp16 or int8 without warm-up"},
      {"train.gradient_sum = adasum", against([](const AxisKind& kind) {
         return kind.tokens == Tokens::kOtherParts || kind.weights == Weights::kParts;
       }),
       [](const RunConfig& c) { return c.train.gradient_sum != parallel::GradientSum::kSum; },
       "its projections are of whole gradients of whole samples", "set it to sum"},
  };
}

void check_layout(const RunConfig& config) {
  const ParallelConfig& axes = config.parallel;
  for (const LayoutRule& rule : layout_rules()) {
    for (const auto& [axis, size_key] : kAxisKeys) {
      const int64_t size = axes.*size_key;
      const bool is_against = std::ranges::count(rule.axes, axis) > 0 && size > 1;
      TRIREME_CHECK(!is_against || !rule.is_used(config), rule.feature, " with parallel.", axis,
                    " = ", size, ": ", rule.reason, "; ", rule.remedy, ", or set parallel.", axis,
                    " = 1");
    }
  }
  if (config.optimizer.state_dtype == StateDtype::kInt8) {
    for (const model::ParameterPlan& parameter : config.task->model().parameters(
             {.tensor = static_cast<int>(axes.tensor), .expert = static_cast<int>(axes.expert)})) {
      check_blocks(parameter.name, parameter.layout);
    }
  }
  const int64_t token_ranks = plan_axes(axes).token_ranks();
  const std::vector<std::string> possible = config.task->model().traits().axes;
  for (const auto& [axis, size_key] : kAxisKeys) {
    const int64_t size = axes.*size_key;
    if (replicates_model(axis)) continue;
    TRIREME_CHECK(size == 1 || std::ranges::count(possible, axis) > 0, "parallel.", axis, " is ",
                  size, ", and the model of task ", config.task_choice.name,
                  " has no plan for it; set it to 1");
  }
  TRIREME_CHECK(
      token_ranks % axes.expert == 0, "parallel.expert is ", axes.expert,
      "; expected a divisor of the ", token_ranks,
      " ranks with different tokens (data * context), over which experts are distributed");
  check_served_model(config);
  const char* const shares =
      config.train.shares_interval > 0 ? "train.shares_interval" : "train.shares";
  TRIREME_CHECK(!config.may_have_shares() || !config.task->traits().has_tables, shares,
                " with the task ", config.task_choice.name,
                ", whose tables need equal shares; leave it out");
  TRIREME_CHECK(!config.may_have_shares() || !config.task->model().traits().has_batch_norm, shares,
                " with a model with batch norms, which would see other samples together; leave it "
                "out, or choose a model without them");
  check_gradient_order(config);
  config.task->model().check_layout(config);
  if (!config.train.freeze.empty()) frozen_parameters(config, config.task->model().parameters({}));
  pipeline_layout(config);
  const bool is_remote = axes.teachers > 0;
  const std::optional<RunConfig> teacher =
      is_remote ? remote_teacher_config(config) : teacher_config(config);
  TRIREME_CHECK(teacher || !is_remote, "parallel.teachers is ", axes.teachers, ", and the task ",
                config.task_choice.name, " has no teacher to put there; set it to 0");
  if (!teacher) return;
  try {
    teacher->task->model().check_layout(*teacher);
    pipeline_layout(*teacher);
  } catch (const ConfigError& error) {
    throw ConfigError(concat(config.task->traits().teacher_key, ": ", error.what()));
  }
}

namespace {

// The checks of open_inputs() that depend on the number of ranks.
void check_ranks(const RunConfig& given, int num_ranks) {
  RunConfig config = given;
  config.parallel.data = 0;
  resolve(config, num_ranks);
  config.task->open(config.train.evaluate_interval > 0);
  check_layout(config);
}

}  // namespace

int largest_world(const RunConfig& config, int available) {
  std::string problem;
  for (int num_ranks = available; num_ranks > 0; --num_ranks) {
    try {
      check_ranks(config, num_ranks);
      return num_ranks;
    } catch (const ConfigError& error) {
      if (num_ranks == available) problem = error.what();
    }
  }
  throw ConfigError(concat("no number of ranks up to the ", available,
                           " that there are fits the config: ", problem));
}

}  // namespace trireme::train
