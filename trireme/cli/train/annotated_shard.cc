// shard of a program with annotated tasks.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/plan/shard_arguments.h"
#include "trireme/cli/plan/shard_report.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/annotated_plan.h"
#include "trireme/train/annotated/note_text.h"

namespace trireme::cli {
namespace {

struct AnnotatedShardArguments : ShardArguments {
  train::Offer offer = train::TaskTable();
  std::string output{};
  int64_t ranks = 0;  // 0: the cluster's devices
};

// As C++: {"fc1.weight", split(0, "tensor")}
std::string note_line(const spmd::Annotation& note) {
  std::string text = concat("{\"", note.name, "\", ");
  std::string call;
  for (const spmd::Splits::Axis& axis : note.splits.axes()) {
    call += concat(call.empty() ? "" : ".", axis.is_partial ? "partial(" : "split(",
                   axis.is_partial ? "" : concat(axis.dim, ", "), "\"", axis.name, "\")");
  }
  return concat(text, call.empty() ? "replicated()" : call, "}");
}

std::string shown_notes(const spmd::Annotations& notes) {
  std::string text = "annotations\n";
  const auto add = [&](const char* what, const std::vector<spmd::Annotation>& all) {
    if (all.empty()) return;
    text += concat("  .", what, " = {");
    for (size_t i = 0; i < all.size(); ++i)
      text += concat(i > 0 ? ",\n      " : "", note_line(all[i]));
    text += "},\n";
  };
  add("parameters", notes.parameters);
  add("inputs", notes.inputs);
  return text + concat("  and ", notes.step.arguments.size(), " arguments of ",
                       notes.step.num_forward + notes.step.num_backward,
                       " operators that move: in parallel.notes\n");
}

void write_notes(const AnnotatedShardArguments& arguments, const train::RunConfig& run,
                 int64_t ranks, int64_t samples, const std::string& notes) {
  const std::vector<train::Override> keys = {{"parallel.tensor", std::to_string(ranks)},
                                             {"parallel.pipeline", "1"},
                                             {"train.micro_batch", std::to_string(samples)},
                                             {"parallel.notes", notes}};
  write_output("--write", arguments.output, train::to_toml(with_layout(run, keys)));
}

int annotated_shard(const AnnotatedShardArguments& arguments) {
  TRIREME_CHECK(arguments.automatic,
                "shard finds placements with --auto; add it. Placements of your own are the "
                "annotations of the task");
  auto [config, cluster] =
      load_files(arguments.config, arguments.cluster, arguments.overrides, arguments.offer);
  const train::AnnotatedTask* const task = annotated_task_of(config);
  TRIREME_CHECK(task != nullptr, "task.name is \"", config.task_choice.name,
                "\", and shard plans annotated tasks; choose one of them");
  const int64_t ranks = arguments.ranks > 0 ? arguments.ranks : cluster.num_devices();
  TRIREME_CHECK(ranks <= cluster.num_devices(), "--ranks is ", ranks, ", and the cluster has ",
                cluster.num_devices(), " devices; take at most as many");
  const plan::ShardAxes axes = parse_shard_axes(concat("tensor=", ranks), cluster);
  config.task->open(/*evaluates=*/false);
  const int64_t samples = arguments.samples > 0          ? arguments.samples
                          : config.train.micro_batch > 0 ? config.train.micro_batch
                                                         : config.train.global_batch;
  if (config.train.recompute == model::Recompute::kAuto)
    config.train.recompute = model::Recompute::kNone;
  const plan::ShardOptions options =
      shard_options(cluster, axes, config.dtype(), arguments.memory_gib);
  const AnnotatedPlan found = plan_annotated(*task, config, options, samples);
  if (!arguments.output.empty()) write_notes(arguments, config, ranks, samples, found.notes);
  if (arguments.json) {
    nlohmann::json all = to_json(found.graph, found.plan, axes);
    all["samples"] = samples;
    all["predicted_seconds"] = found.step_seconds;
    all["notes"] = found.notes;
    std::printf("%s\n", json_text(all).c_str());
    return kDone;
  }
  std::printf("traced   %zu operators on %lld samples, planned %d kinds\n%s%s",
              found.graph.nodes.size(), static_cast<long long>(samples), found.plan.num_kinds,
              show(found.graph, found.plan, axes).c_str(), shown_notes(found.annotations).c_str());
  return kDone;
}

}  // namespace

void add_annotated_shard(CLI::App& app, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<AnnotatedShardArguments>();
  arguments->offer = offer;
  CLI::App* command = app.add_subcommand(
      "shard",
      "Find how to split an annotated task's model over tensor ranks, with proof.\n"
      "  " +
          app.get_name() +
          " shard run.toml cluster.toml --auto --ranks 2 --write planned.toml\n"
          "Traces a step of the task, forward and backward, without memory, and finds the split "
          "of\n"
          "each parameter, input and operator with which the step takes the fewest seconds. What\n"
          "annotations() says stays. `train planned.toml` runs the plan; parallel.auto = true "
          "finds\n"
          "and runs one in a single step. See docs/guide/annotated-tasks.md.\n");
  add_shard_files(*command, *arguments, "config file, as for `train`");
  command
      ->add_option("--ranks", arguments->ranks, "tensor ranks. Default: all devices of the cluster")
      ->check(within({2, kMaxRanks}));
  add_shard_bounds(*command, *arguments, "--samples",
                   "samples of one forward. Default: train.micro_batch, or if that is auto "
                   "train.global_batch");
  command->add_option("--write", arguments->output,
                      "write the config with the plan, in parallel.tensor, train.micro_batch and "
                      "parallel.notes, to this file");
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = annotated_shard(*arguments);
  });
}

}  // namespace trireme::cli
