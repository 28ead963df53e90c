// trireme bench graph: communication graphs of learners, checked and drawn.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/bench/bench_graph.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/parallel/learner/graph_drawing.h"

namespace trireme::cli {
namespace {

struct GraphArguments {
  GraphCase what;
  std::string svg;
  bool json = false;
};

constexpr int kMostRoundsAsked = 4096;

int bench_graph(const GraphArguments& arguments) {
  const GraphFindings findings = check_graph(arguments.what);
  if (!arguments.svg.empty()) {
    write_output("--svg", arguments.svg, parallel::draw_svg(findings.graph));
  }
  std::printf(
      "%s", arguments.json ? (graph_json(findings) + "\n").c_str() : show_graph(findings).c_str());
  return kDone;
}

}  // namespace

void add_bench_graph(CLI::App& bench, int& exit_code) {
  auto arguments = std::make_shared<GraphArguments>();
  GraphCase& what = arguments->what;
  CLI::App* command = bench.add_subcommand(
      "graph",
      "Check and draw a graph over which learners exchange (outer.graph). Needs no model and no\n"
      "data.\n"
      "  trireme bench graph ring --learners 6\n"
      "  trireme bench graph base-2 --learners 6 --svg graph.svg\n"
      "  trireme bench graph ./mine.graph --json\n");
  command
      ->add_option("graph", what.graph,
                   "complete, ring, torus, exponential, one-peer, base-K, host, or a file")
      ->required();
  command
      ->add_option("--learners", what.num_learners,
                   "number of learners; 0 = that of the file, or 4 for a name")
      ->check(within({0, parallel::kMostLearners}))
      ->capture_default_str();
  command
      ->add_option("--hosts", what.num_hosts,
                   "graph host: hosts with equally many learners, in order")
      ->check(within({1, parallel::kMostLearners}))
      ->capture_default_str();
  command->add_option("--rounds", what.num_rounds, "rounds whose errors are shown")
      ->check(within({0, kMostRoundsAsked}))
      ->capture_default_str();
  command->add_option("--svg", arguments->svg, "draw the rounds to this SVG file");
  command->add_flag("--json", arguments->json, "print JSON, with every edge");
  command->footer(
      "Words:\n"
      "  doubly stochastic  learners give as much as they get in every round\n"
      "  column stochastic  some do not, and push-sum corrects for it\n"
      "  exact              all learners have the mean, to rounding\n"
      "  gap                1 - the factor by which a period of rounds shrinks a disagreement in\n"
      "                     the long run\n"
      "A file has the lines `learners N`, `round`, and `FROM TO WEIGHT` for each edge of the "
      "round\n"
      "(docs/guide/learners.md).");
  command->callback([arguments, &exit_code] { exit_code = bench_graph(*arguments); });
}

}  // namespace trireme::cli
