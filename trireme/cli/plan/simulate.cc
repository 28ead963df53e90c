// trireme simulate.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/plan/learner_plan.h"
#include "trireme/cli/plan/measured_steps.h"
#include "trireme/cli/plan/planning.h"
#include "trireme/cli/plan/serve.h"
#include "trireme/cli/plan/sweep.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

struct SimulateArguments {
  std::string config;
  std::string cluster;
  std::string trace;
  std::string svg;
  std::string sweep;
  std::string csv;
  std::string measured;  // a run's folder
  bool timeline = false;
  bool json = false;
  ServeArguments serve{};
  std::vector<std::string> overrides;  // as typed
};

// A Chrome trace: a thread for each pipeline rank.
std::string trace_of(const plan::StepTimeline& step) {
  nlohmann::json events = nlohmann::json::array();
  for (size_t rank = 0; rank < step.timeline.ranks.size(); ++rank) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", concat("pipeline rank ", rank)}}}});
    for (const parallel::TimedAction& timed : step.timeline.ranks[rank]) {
      events.push_back({{"name", to_string(timed.action)},
                        {"cat", "predicted"},
                        {"ph", "X"},
                        {"pid", 0},
                        {"tid", rank},
                        {"ts", 1e6 * timed.start},
                        {"dur", 1e6 * (timed.end - timed.start)}});
    }
  }
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

void write_drawings(const SimulateArguments& arguments, const plan::Workload& work,
                    const plan::Cluster& cluster, const plan::StageLayout& layout) {
  if (arguments.trace.empty() && arguments.svg.empty() && !arguments.timeline) return;
  const plan::StepTimeline step = step_timeline(work, cluster, layout);
  if (!arguments.trace.empty()) write_output("--trace", arguments.trace, trace_of(step));
  if (!arguments.svg.empty()) {
    const std::string title = concat(step.schedule.name, ", predicted");
    write_output(
        "--svg", arguments.svg,
        draw_svg(step.schedule, step.timeline.scaled(1e3), {.title = title, .unit = "ms"}));
  }
  if (arguments.timeline && !arguments.json) {
    std::fputs(draw_text(step.schedule, step.timeline.scaled(1e3)).c_str(), stdout);
  }
}

int simulate(const SimulateArguments& arguments) {
  if (arguments.serve.serve) {
    serve(load_case(arguments.config, arguments.cluster, arguments.overrides), arguments.serve,
          arguments.json);
    return kDone;
  }
  if (!arguments.sweep.empty()) {
    TRIREME_CHECK(arguments.trace.empty() && !arguments.timeline,
                  "--trace and --timeline show one step, and --sweep has many; leave them out");
    const Sweep sweep =
        run_sweep({arguments.config, arguments.cluster, arguments.overrides}, arguments.sweep);
    if (!arguments.csv.empty()) write_output("--csv", arguments.csv, sweep.csv());
    if (!arguments.svg.empty()) write_output("--svg", arguments.svg, sweep.svg());
    std::fputs(arguments.json ? (json_text(sweep.json()) + "\n").c_str() : sweep.table().c_str(),
               stdout);
    return kDone;
  }
  TRIREME_CHECK(arguments.csv.empty(), "--csv is of --sweep, such as --sweep nodes=1,2,4,8");
  PlanningCase planning = load_case(arguments.config, arguments.cluster, arguments.overrides);
  plan::Workload work = resolve_on(planning.config, planning.cluster.num_devices());
  set_offload(planning.config.offload, work, planning.cluster);
  const plan::StageLayout layout = runtime_stages(planning.config);
  const RunPrediction predicted = predict_run(planning.config, work, planning.cluster, layout);
  const plan::StepPrediction& step = predicted.step;
  const int64_t steps = planning.config.train.steps;
  const RunForecast run = forecast(step, planning.cluster, steps);
  std::optional<MeasuredSteps> measured;
  if (!arguments.measured.empty()) measured = read_steps(arguments.measured);
  if (arguments.json) {
    nlohmann::json all = to_json(step);
    if (predicted.learners) all["outer"] = to_json(*predicted.learners, planning.config);
    if (measured) all["measured"] = to_json(*measured);
    all["layout"] = train::describe_layout(planning.config);
    all["run"] = to_json(run);
    std::printf("%s\n", json_text(all).c_str());
  } else {
    std::printf(
        "model    %s, %s parameters\n", planning.config.task->model().traits().name.c_str(),
        human_count(static_cast<double>(planning.config.task->model().traits().num_parameters))
            .c_str());
    std::printf("cluster  %s\n", describe(planning.cluster).c_str());
    std::printf("layout   %s\n", train::describe_layout(planning.config).c_str());
    std::fputs(show(step).c_str(), stdout);
    if (predicted.learners) {
      std::fputs(show(*predicted.learners, planning.config).c_str(), stdout);
    }
    std::fputs(show(run, steps).c_str(), stdout);
    if (measured) {
      // Most steps have no exchange, and medians are those of most.
      const bool has_learners = predicted.learners.has_value();
      std::fputs(compare(has_learners ? predicted.learners->inner : step, *measured).c_str(),
                 stdout);
    }
  }
  write_drawings(arguments, work,
                 cluster_of_learner(planning.cluster, planning.config.parallel.learners), layout);
  return kDone;
}

}  // namespace

void add_simulate(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* command = app.add_subcommand(
      "simulate",
      "Predict the time, memory and FLOPs of a training step, and the cost of the whole run,\n"
      "on a cluster that you need not have. It simulates the same schedule that training runs.\n"
      "  trireme simulate examples/demo.toml examples/clusters/laptop.toml "
      "--model.vocab_size=4096\n"
      "  trireme simulate examples/plan/llama-8b.toml examples/clusters/dgx-h100.toml\n"
      "  ... --sweep nodes=1,2,4,8,16 --svg scaling.svg --csv scaling.csv\n"
      "  ... --serve --serve-context 4096\n"
      "Keys of both files can be given: --parallel.tensor=8 --cluster.nodes=4. See\n"
      "docs/guide/planner.md.\n");
  command->add_option("config", arguments->config, "config file, as for `trireme train`")
      ->required();
  command
      ->add_option("cluster", arguments->cluster,
                   "CLUSTER file, which describes the cluster; its keys are below")
      ->required();
  command->add_flag("--timeline", arguments->timeline, "draw the pipeline timeline as text");
  command->add_option("--trace", arguments->trace,
                      "write the timeline to this trace file, for https://ui.perfetto.dev");
  command->add_option("--svg", arguments->svg, "draw the timeline or the sweep to this SVG file");
  command->add_option("--sweep", arguments->sweep,
                      "predict for several values of a key, such as nodes=1,2,4 (same batch), "
                      "weak=1,2,4 (nodes; the batch grows with them) or parallel.tensor=1,2,4,8");
  command->add_option("--csv", arguments->csv, "write the sweep to this CSV file");
  command->add_option("--measured", arguments->measured,
                      "folder of a run whose measured steps to compare with");
  add_serve_options(*command, arguments->serve);
  add_json(*command, arguments->json);
  command->footer([] { return "Keys of the CLUSTER file:\n" + describe_cluster_keys(); });
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = simulate(*arguments);
  });
}

}  // namespace trireme::cli
