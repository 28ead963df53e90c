// trireme bench pipeline: schedules drawn, compared, and run on local ranks.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/bench/bench_pipeline.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

namespace trireme::cli {
namespace {

struct PipelineArguments {
  PipelineCase what;
  int num_runs = 3;
  int width = 0;  // columns; 0: the terminal's
  std::string svg;
  bool show = false;
  bool compare = false;
  bool run = false;
  bool color = false;
  bool json = false;
};

int terminal_width() {
  constexpr int kDefault = 100;
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefault;
}

// All schedules that fit the case, each with its own number of chunks.
std::vector<PipelineReport> plan_all(const PipelineArguments& arguments) {
  if (!arguments.compare) return {plan_pipeline(arguments.what)};
  std::vector<PipelineReport> reports;
  for (const std::string& name : parallel::schedule_names()) {
    PipelineCase what = arguments.what;
    what.schedule = name;
    what.num_chunks = name == "interleaved" || name == "breadth-first" ? what.num_chunks : 0;
    reports.push_back(plan_pipeline(what));
  }
  return reports;
}

void write_svg(const PipelineArguments& arguments, const PipelineReport& report) {
  const parallel::Timeline& timeline =
      report.measured ? report.measured->timeline : report.timeline;
  const std::string title =
      concat(report.what.schedule, ", ", report.what.num_ranks, " stages, ",
             report.what.num_microbatches, " microbatches", report.measured ? ", measured" : "");
  write_output("--svg", arguments.svg,
               draw_svg(report.schedule, timeline, {.title = title, .unit = "ms"}));
}

int bench_pipeline(const PipelineArguments& arguments) {
  TRIREME_CHECK(arguments.svg.empty() || !arguments.compare,
                "--svg draws one schedule, and --compare has all; leave one out");
  std::vector<PipelineReport> reports = plan_all(arguments);
  if (arguments.run) {
    for (PipelineReport& report : reports)
      report.measured = run_sleeping(report, arguments.num_runs);
  }
  if (!arguments.svg.empty()) write_svg(arguments, reports.front());
  if (arguments.json) {
    std::printf("%s\n", json_list(reports).c_str());
    return kDone;
  }
  const int width = arguments.width > 0 ? arguments.width : terminal_width();
  for (const PipelineReport& report : reports) {
    if (arguments.compare && !arguments.show) break;
    std::printf("%s\n", show_pipeline(report, width, arguments.color).c_str());
  }
  if (arguments.compare) std::fputs(compare_pipelines(reports).c_str(), stdout);
  return kDone;
}

constexpr const char* kFooter =
    "Schedules:\n"
    "  gpipe          all forwards, then all backwards: holds every microbatch\n"
    "  1f1b           forward and backward in turn: holds as many microbatches as stages\n"
    "  interleaved    1f1b over several chunks per rank: smaller bubble, more transfers\n"
    "  zero-bubble    backward split in two; its weight part fills the bubble\n"
    "                 (ZB-H1; with --memory-limit above --stages ZB-2p)\n"
    "  zero-bubble-v  the same over two chunks per rank in a V: no bubble when times are equal\n"
    "  breadth-first  gpipe over several chunks per rank\n"
    "Numbers:\n"
    "  bubble         the share of a step in which the busiest rank computes nothing\n"
    "  formula        from the literature: (p-1)/(m+p-1) for gpipe and 1f1b, the\n"
    "                 bubble's time divided by the chunks for interleaved and breadth-first,\n"
    "                 (p-1)(F+B-W) for zero-bubble\n"
    "  activations    the most a rank holds until the weight part, in microbatches\n"
    "Times are per microbatch, for all of a rank's chunks together.";

}  // namespace

void add_bench_pipeline(CLI::App& bench, int& exit_code) {
  auto arguments = std::make_shared<PipelineArguments>();
  PipelineCase& what = arguments->what;
  CLI::App* command = bench.add_subcommand(
      "pipeline",
      "Show, compare and run pipeline schedules. Needs no model and no data.\n"
      "  trireme bench pipeline --schedule 1f1b --stages 4 --microbatches 8\n"
      "  trireme bench pipeline --compare --stages 8 --microbatches 32\n"
      "  trireme bench pipeline --run --schedule zero-bubble-v --stages 8 --svg measured.svg\n");
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  option("--schedule", what.schedule,
         "schedule: gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v or breadth-first");
  const auto number = [&](const char* name, auto& value, const Range& range, const char* help) {
    option(name, value, help)->check(within(range));
  };
  constexpr Range kTime{.minimum = 0, .maximum = 1e6, .above_minimum = true};
  number("--stages", what.num_ranks, {1, 1024}, "number of pipeline ranks, p");
  number("--chunks", what.num_chunks, {0, 1024},
         "model chunks per rank, v; 0 = 1, or 2 where the schedule needs them");
  number("--microbatches", what.num_microbatches, {1, 100'000}, "microbatches per step, m");
  number("--forward", what.milliseconds.forward, kTime, "F: time of the forward pass, in ms");
  number("--backward-input", what.milliseconds.backward_input, kTime,
         "B: time of the backward pass for inputs, in ms");
  number("--backward-weight", what.milliseconds.backward_weight, {0, 1e6},
         "W: time of the backward pass for weights, in ms");
  number("--communication", what.communication_milliseconds, {0, 1e6},
         "time of a transfer between ranks, in ms");
  number("--memory-limit", what.memory_limit, {0, 1e6},
         "zero-bubble schedules: maximum microbatches that a rank holds; 0 = --stages");
  number("--kept-for-weight", what.kept_for_weight, {0, 1},
         "fraction of the activations that W needs");
  command->add_flag(
      "--show", arguments->show,
      "draw the timeline, with --compare that of each schedule (default without --compare)");
  command->add_option("--svg", arguments->svg,
                      "also draw the timeline to this SVG file; with --run, the measured one");
  command->add_flag("--compare", arguments->compare, "print a table of all schedules");
  command->add_flag(
      "--run", arguments->run,
      "execute the schedule on local ranks, with stages that sleep for the given times");
  number("--runs", arguments->num_runs, {1, 1000},
         "number of executions, of which the fastest is reported");
  command
      ->add_option("--width", arguments->width,
                   "width of the drawing, in columns. Default: that of the terminal, or 100")
      ->check(within({1, 10'000}));
  command->add_flag("--color", arguments->color, "draw in colours");
  command->add_flag("--json", arguments->json, "print a JSON array of objects instead");
  command->footer(kFooter);
  command->callback([arguments, &exit_code] { exit_code = bench_pipeline(*arguments); });
}

}  // namespace trireme::cli
