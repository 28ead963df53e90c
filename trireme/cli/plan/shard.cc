// trireme shard.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/plan/planning.h"
#include "trireme/cli/plan/shard_arguments.h"
#include "trireme/cli/plan/shard_report.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/model/llama/plain_llama.h"
#include "trireme/spmd/graph/trace.h"
#include "trireme/tasks/language/language.h"

namespace trireme::cli {
namespace {

struct ModelShardArguments : ShardArguments {
  std::string axes{};
};

spmd::Graph trace_model(const train::RunConfig& config, int64_t sequences) {
  const tasks::LanguageConfig& language = tasks::language_of(config);
  TRIREME_CHECK(!language.objective.is_classify() && !language.objective.is_dpo(),
                "objective.kind is not next-token prediction, the only one that can be traced");
  const model::ModelConfig& model = language.model;
  const auto net = spmd::made_without_memory(
      [&] { return std::make_shared<model::PlainLlama>(model, config.dtype()); });
  const std::vector<int64_t> sizes = {sequences, model.sequence_length};
  return spmd::trace_step(*net, [&] {
    return net->loss(spmd::without_memory(sizes, at::kLong),
                     spmd::without_memory(sizes, at::kLong));
  });
}

int shard(const ModelShardArguments& arguments) {
  TRIREME_CHECK(arguments.automatic,
                "trireme shard finds placements with --auto; add it. Placements of your own are "
                "annotations in C++");
  const PlanningCase planning = load_case(arguments.config, arguments.cluster, arguments.overrides);
  const plan::ShardOptions options =
      shard_options(planning.cluster, parse_shard_axes(arguments.axes, planning.cluster),
                    planning.config.dtype(), arguments.memory_gib);
  const int64_t sequences =
      arguments.samples > 0 ? arguments.samples : planning.config.train.global_batch;
  const auto start = std::chrono::steady_clock::now();
  const spmd::Graph graph = trace_model(planning.config, sequences);
  const double trace_seconds = seconds_since(start);
  const auto traced = std::chrono::steady_clock::now();
  const plan::ShardPlan found = plan_shards(graph, options);
  const double plan_seconds = seconds_since(traced);
  if (arguments.json) {
    nlohmann::json all = to_json(graph, found, options.axes);
    all["trace_seconds"] = trace_seconds;
    all["plan_seconds"] = plan_seconds;
    all["sequences"] = sequences;
    std::printf("%s\n", json_text(all).c_str());
    return kDone;
  }
  std::string axes;
  for (const plan::ShardAxis& axis : options.axes)
    axes += concat(axes.empty() ? "" : " x ", axis.name, " ", axis.group.ranks);
  std::printf("cluster  %s as %s\n", describe(planning.cluster).c_str(), axes.c_str());
  std::printf("traced   %zu operators on %lld sequences in %.3f s, planned %d kinds in %.3f s\n",
              graph.nodes.size(), static_cast<long long>(sequences), trace_seconds, found.num_kinds,
              plan_seconds);
  const std::vector<std::string> missing = spmd::without_rule(graph);
  if (!missing.empty())
    std::printf("no rule  %s: every rank would compute these whole\n", joined(missing).c_str());
  std::fputs(show(graph, found, options.axes).c_str(), stdout);
  return kDone;
}

}  // namespace

void add_shard(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ModelShardArguments>();
  CLI::App* command = app.add_subcommand(
      "shard",
      "Find how to split a model's tensors over the ranks of a cluster, with proof.\n"
      "  trireme shard examples/plan/llama-8b.toml examples/clusters/dgx-h100.toml --auto \\\n"
      "    --axes data=8,tensor=8 --sequences 8 --memory 0\n"
      "Traces a step of the model in plain torch, forward and backward, without memory, and\n"
      "finds the split of each parameter and each operator on one or two axes of ranks with\n"
      "which the step takes the fewest seconds. Lists the placements, what each is worth, and\n"
      "every redistribution with its operator, module, bytes, seconds and reason. Models:\n"
      "dense ones of family llama. See docs/guide/planner.md.\n");
  add_shard_files(*command, *arguments, "config file, as for `trireme train`");
  command->add_option("--axes", arguments->axes,
                      "one or two axes and their ranks, the outer one first, such as "
                      "data=8,tensor=8. Default: data = nodes, tensor = devices per node");
  add_shard_bounds(*command, *arguments, "--sequences",
                   "sequences of one forward of all ranks. Default: train.global_batch");
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = shard(*arguments);
  });
}

}  // namespace trireme::cli
