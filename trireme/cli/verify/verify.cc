// trireme verify: whether the difference between two layouts is rounding or a bug.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/verify/twin_runs.h"
#include "trireme/verify/comparison.h"

namespace trireme::cli {
namespace {

using nlohmann::json;
using verify::Comparison;
using verify::Finding;
using verify::Probe;

constexpr int kUndecidedCode = kUserError;

struct VerifyArguments {
  std::string a;
  std::string b;
  std::vector<std::string> only_a;  // "parallel.tensor=2"
  std::vector<std::string> only_b;
  int ranks_a = 1;
  int ranks_b = 1;
  int64_t steps = 3;
  std::string output = "runs/verify";
  int64_t shown = 10;
  bool json = false;
  std::vector<std::string> both;  // as typed: --train.micro_batch=2
};

TwinOptions options_of(const VerifyArguments& arguments, const train::Offer& offer) {
  const auto side = [&](const char* name, const std::string& config,
                        const std::vector<std::string>& only, int num_ranks) {
    TwinSide made{
        .name = name, .config = config, .overrides = arguments.both, .num_ranks = num_ranks};
    for (const std::string& setting : only) {
      TRIREME_CHECK(setting.find('=') != std::string::npos, "\"", printable(setting),
                    "\" is not KEY=VALUE, such as parallel.tensor=2");
      made.overrides.push_back("--" + setting);
    }
    return made;
  };
  return {.a = side("A", arguments.a, arguments.only_a, arguments.ranks_a),
          .b = side("B", arguments.b.empty() ? arguments.a : arguments.b, arguments.only_b,
                    arguments.ranks_b),
          .folder = arguments.output,
          .steps = arguments.steps,
          .offer = offer};
}

// JSON has no infinity.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json to_json(const Probe& probe) {
  json object = {{"step", probe.step},
                 {"kind", name_of(verify::kProbeKinds, probe.kind)},
                 {"name", printable(probe.name)},
                 {"finding", name_of(verify::kFindings, probe.finding)},
                 {"fp32_relative", number(probe.fp32.relative)},
                 {"fp64_relative", number(probe.fp64.relative)},
                 {"fp32_absolute", number(probe.fp32.absolute)},
                 {"fp64_absolute", number(probe.fp64.absolute)}};
  if (!probe.note.empty()) object["note"] = probe.note;
  if (probe.first) {
    object["first"] = {{"index", probe.first->index}, {"a", probe.first->a}, {"b", probe.first->b}};
  }
  return object;
}

json to_json(const Comparison& comparison) {
  json probes = json::array();
  for (const Probe& probe : comparison.probes) probes.push_back(to_json(probe));
  json object = {{"finding", name_of(verify::kFindings, comparison.finding())},
                 {"steps", comparison.num_steps},
                 {"compared", comparison.num_probes},
                 {"largest_rounding_fp64", number(comparison.largest_fp64)},
                 {"probes", std::move(probes)}};
  const Probe* const first = comparison.first();
  if (first != nullptr) object["first"] = to_json(*first);
  return object;
}

std::string title_of(const Probe& probe) {
  const std::string kind(name_of(verify::kProbeKinds, probe.kind));
  return concat("step ", probe.step, ", ",
                probe.name.empty() ? kind : concat(kind, " of ", printable(probe.name)));
}

std::string difference_text(const Probe& probe) {
  std::string text =
      format("relative %.2g in fp32, %.2g in fp64", probe.fp32.relative, probe.fp64.relative);
  if (probe.first) text += concat("; ", probe.first->text());
  if (!probe.note.empty()) text += concat("; ", probe.note);
  return text;
}

void print_line(const std::string& line) {
  std::printf("%s\n", wrapped_line(line, output_columns()).c_str());
}

void print(const Comparison& comparison, int64_t most) {
  const Finding finding = comparison.finding();
  int64_t num_listed = 0, num_like = 0;
  for (const Probe& probe : comparison.probes) {
    if (probe.finding != finding || finding < Finding::kUndecided) continue;
    ++num_like;
    if (num_listed >= most) continue;
    ++num_listed;
    print_line(concat(finding == Finding::kBug ? "differs  " : "unsure   ", title_of(probe), ": ",
                      difference_text(probe)));
  }
  if (num_like > num_listed) print_line(concat("         and ", num_like - num_listed, " more"));
  print_line(concat("compared ", comparison.num_probes, " probes of ", comparison.num_steps,
                    comparison.num_steps == 1 ? " step" : " steps",
                    "; largest difference that is rounding: ",
                    format("%.2g", comparison.largest_fp64), " of the tensor in fp64"));
  const Probe* const first = comparison.first();
  switch (finding) {
    case Finding::kSame: print_line("SAME     every bit of A and B is the same"); return;
    case Finding::kRounding:
      print_line("ROUNDING the differences of A and B shrink with the precision");
      return;
    case Finding::kUndecided:
      print_line(concat("UNDECIDED first at ", title_of(*first), ": ", difference_text(*first)));
      return;
    case Finding::kBug:
      print_line(concat("BUG      first at ", title_of(*first), ": ", difference_text(*first)));
      return;
  }
}

int code_of(Finding finding) {
  if (finding == Finding::kBug) return kBug;
  return finding == Finding::kUndecided ? kUndecidedCode : kDone;
}

int verify_layouts(const VerifyArguments& arguments, const train::Offer& offer) {
  const TwinOptions options = options_of(arguments, offer);
  const std::vector<TwinRun> twins = train_twins(options, [&](const TwinRun& run, double seconds) {
    if (arguments.json || seconds == 0) return;
    print_line(concat("run      ", run.side, " in ", run.precision, ": ", options.steps,
                      " steps in ", human_duration(seconds), ", ", run.folder.string()));
    std::fflush(stdout);
  });
  const verify::RecordedRun a32(twins[0].folder), b32(twins[1].folder);
  const verify::RecordedRun a64(twins[2].folder), b64(twins[3].folder);
  Comparison comparison;
  {
    ProgressBar bar("compare", "steps");
    comparison = verify::compare({a32, b32}, {a64, b64}, [&](int64_t done, int64_t total) {
      if (!arguments.json) bar.update(done, total);
    });
  }
  TRIREME_CHECK(comparison.num_steps == arguments.steps, "only ", comparison.num_steps, " of ",
                arguments.steps, " steps were recorded, see ", arguments.output,
                "; expected runs of at least that many train.steps");
  if (arguments.json) {
    std::printf("%s\n", json_text(to_json(comparison)).c_str());
  } else {
    print(comparison, arguments.shown);
  }
  return code_of(comparison.finding());
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<VerifyArguments>();
  const std::string name = app.get_name();
  CLI::App* command = app.add_subcommand(
      "verify",
      concat("Find out whether two layouts differ by rounding or by a bug. Trains a few steps of\n"
             "both in fp32 and in fp64 and compares losses, gradients, optimizer states and\n"
             "weights: rounding shrinks with the precision, a mistake stays.\n  ",
             name,
             " verify examples/demo.toml --ranks-b 2 --b parallel.tensor=2 "
             "--model.vocab_size=4096\n  ",
             name, " verify a.toml b.toml --ranks-a 4 --ranks-b 4 --steps 2\n",
             "Keys of the config can be given for both sides: --train.micro_batch=2. See\n"
             "docs/guide/verify.md.\n"));
  command->add_option("A", arguments->a, "config of the side that is believed")->required();
  command->add_option("B", arguments->b, "config of the other side; without it A's");
  command->add_option("--a", arguments->only_a, "KEY=VALUE for A alone; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--b", arguments->only_b, "KEY=VALUE for B alone; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--ranks-a", arguments->ranks_a, "ranks of A on this machine")
      ->check(within({1, 4096}))
      ->capture_default_str();
  command->add_option("--ranks-b", arguments->ranks_b, "ranks of B on this machine")
      ->check(within({1, 4096}))
      ->capture_default_str();
  command->add_option("--steps", arguments->steps, "steps to compare")
      ->check(within({1, 1000}))
      ->capture_default_str();
  command
      ->add_option("--output", arguments->output,
                   "new or empty folder for the four runs and what they print")
      ->capture_default_str();
  command->add_option("--shown", arguments->shown, "most differences to list")
      ->check(within({0, 1e6}))
      ->capture_default_str();
  add_json(*command, arguments->json);
  command->footer(
      "Exit codes: 0 the same bits or rounding, 1 a bug, 2 undecided, or an error you can fix.\n"
      "The first probe that differs is the nearest to the cause: a step makes its loss, then the\n"
      "gradients from the last layer to the first, then their norm, states and weights.\n");
  command->allow_extras();
  command->callback([arguments, command, offer, &exit_code] {
    arguments->both = command->remaining();
    exit_code = verify_layouts(*arguments, offer);
  });
}

}  // namespace trireme::cli
