// trireme verify: whether the difference between two layouts is rounding or a bug.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/verify/comparison_json.h"
#include "trireme/cli/verify/reference_runs.h"
#include "trireme/cli/verify/twin_comparison.h"
#include "trireme/cli/verify/twin_runs.h"
#include "trireme/cli/verify/verify_page.h"
#include "trireme/verify/comparison.h"

namespace trireme::cli {
namespace {

using verify::Comparison;
using verify::Finding;
using verify::Probe;

constexpr int kUndecidedCode = kUserError;

struct VerifyArguments {
  std::string a;
  std::string b;
  std::vector<std::string> only_a;  // "parallel.tensor=2"
  std::vector<std::string> only_b;
  std::vector<std::string> layout;  // of B, when A is a run: "tensor=2"
  int ranks_a = 0;                  // 0: 1, or those of the run
  int ranks_b = 0;
  int64_t from_step = 0;  // 0: the run's newest checkpoint
  int64_t steps = 3;
  std::string output = "runs/verify";
  int64_t shown = 10;
  int64_t tier = 1;
  int64_t activations = 1000;
  std::string html;
  bool json = false;
  ReferenceArguments reference;
  std::vector<std::string> both;  // as typed: --train.micro_batch=2
};

TwinSide side_of(const VerifyArguments& arguments, const char* name, const std::string& config,
                 const std::vector<std::string>& only, int num_ranks) {
  TwinSide made{
      .name = name, .config = config, .overrides = arguments.both, .num_ranks = num_ranks};
  for (const std::string& setting : only) {
    TRIREME_CHECK(setting.find('=') != std::string::npos, "\"", printable(setting),
                  "\" is not KEY=VALUE, such as parallel.tensor=2");
    made.overrides.push_back("--" + setting);
  }
  return made;
}

TwinOptions common_options(const VerifyArguments& arguments, TwinSide a, TwinSide b,
                           const train::Offer& offer) {
  return {.a = std::move(a),
          .b = std::move(b),
          .folder = arguments.output,
          .steps = arguments.steps,
          .activations = arguments.activations,
          .tier = static_cast<Tier>(arguments.tier),
          .offer = offer};
}

// A goes on from a checkpoint of its own run, and B from the same in another layout.
TwinOptions options_of_run(const VerifyArguments& arguments, const train::Offer& offer) {
  const std::filesystem::path run = arguments.a;
  TRIREME_CHECK(arguments.b.empty(), arguments.b, " is given beside the run ", arguments.a,
                "; expected the layout of B: --layout tensor=2");
  TRIREME_CHECK(!arguments.layout.empty(), arguments.a,
                " is a run, and there is nothing to compare it with; expected --layout KEY=VALUE, "
                "such as --layout tensor=2");
  const std::optional<int64_t> last =
      arguments.from_step > 0 ? std::optional(arguments.from_step) : std::nullopt;
  StartingPoint start = find_start(run, last, offer);
  TRIREME_CHECK(start.step + arguments.steps <= start.config.train.steps, arguments.a,
                " has a checkpoint of step ", start.step, " of ", start.config.train.steps,
                "; expected at least --steps ", arguments.steps,
                " to go: give --from-step of an earlier one");
  std::vector<std::string> only_b = arguments.only_b;
  for (const std::string& key : arguments.layout) {
    const bool has_section = key.substr(0, key.find('=')).find('.') != std::string::npos;
    only_b.push_back(has_section ? key : "parallel." + key);
  }
  const std::string config = (run / train::kConfigName).string();
  const auto ranks = [&](int given) { return given > 0 ? given : start.num_ranks; };
  TwinOptions options = common_options(
      arguments, side_of(arguments, "A", config, arguments.only_a, ranks(arguments.ranks_a)),
      side_of(arguments, "B", config, only_b, ranks(arguments.ranks_b)), offer);
  options.start = std::move(start);
  return options;
}

// What is for B, when there is none.
void check_no_b(const VerifyArguments& arguments, const char* option) {
  const char* const given = !arguments.b.empty()        ? "a config of B"
                            : !arguments.only_b.empty() ? "--b"
                            : arguments.ranks_b > 0     ? "--ranks-b"
                                                        : nullptr;
  TRIREME_CHECK(given == nullptr, given == nullptr ? "" : given, " is given beside ", option,
                ", which has no B; expected A and its keys");
}

TwinOptions options_of(const VerifyArguments& arguments, const train::Offer& offer) {
  if (!arguments.reference.folder.empty()) check_no_b(arguments, "--reference");
  if (!arguments.reference.batch.empty()) check_no_b(arguments, "--batch");
  if (std::filesystem::is_directory(arguments.a)) {
    TRIREME_CHECK(arguments.reference.folder.empty() && arguments.reference.batch.empty(),
                  arguments.a,
                  " is the folder of a run, and --reference and --batch are of a config's first "
                  "step; expected the TOML file of A");
    return options_of_run(arguments, offer);
  }
  const bool is_for_run = !arguments.layout.empty() || arguments.from_step > 0;
  TRIREME_CHECK(!is_for_run, arguments.layout.empty() ? "--from-step" : "--layout",
                " is of a run's folder, and ", arguments.a,
                " is none; expected a run, or --b KEY=VALUE");
  return common_options(
      arguments,
      side_of(arguments, "A", arguments.a, arguments.only_a, std::max(1, arguments.ranks_a)),
      side_of(arguments, "B", arguments.b.empty() ? arguments.a : arguments.b, arguments.only_b,
              std::max(1, arguments.ranks_b)),
      offer);
}

// What the page calls the two sides.
// reference: the folder in place of B; "": there is none
ComparedSides names_of(const TwinOptions& options, const std::string& reference) {
  const auto name = [](const TwinSide& side) {
    std::string text =
        concat(side.config, ", ", side.num_ranks, side.num_ranks == 1 ? " rank" : " ranks");
    for (const std::string& word : side.overrides) text += " " + word;
    return printable(text);
  };
  return {.a = name(options.a),
          .b = reference.empty() ? name(options.b) : printable(reference + ", recorded")};
}

std::string title_of(const Probe& probe) {
  const std::string kind(name_of(verify::kProbeKinds, probe.kind));
  return concat("step ", probe.step, ", ",
                probe.learner ? concat("learner ", *probe.learner, ", ") : "",
                probe.name.empty() ? kind : concat(kind, " of ", printable(probe.name)));
}

std::string difference_text(const Probe& probe, bool is_proved) {
  std::string text = format(
      is_proved ? "relative %.2g in fp32, %.2g in fp64" : "relative %.2g, and %.2g by roundoffs",
      probe.found.relative, probe.scale.relative);
  if (probe.first) text += concat("; ", probe.first->text());
  if (!probe.note.empty()) text += concat("; ", probe.note);
  return text;
}

void print_line(const std::string& line) {
  std::printf("%s\n", wrapped_line(line, output_columns()).c_str());
}

// What the verdict does not say.
void print_notes(const Comparison& comparison) {
  for (const Probe& probe : comparison.probes) {
    if (probe.kind == verify::ProbeKind::kChoices && probe.finding == Finding::kRounding)
      print_line(concat("ties     ", title_of(probe), ": ", probe.note));
  }
  for (const std::string& name : comparison.left_out)
    print_line(concat("not compared: ", printable(name), ", which no ranks have whole"));
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
                      difference_text(probe, comparison.is_proved)));
  }
  if (num_like > num_listed) print_line(concat("         and ", num_like - num_listed, " more"));
  print_line(
      concat("compared ", comparison.num_probes, " probes of ", comparison.num_steps,
             comparison.num_steps == 1 ? " step" : " steps",
             "; largest difference that is rounding: ", format("%.2g", comparison.largest_rounding),
             " of the tensor", comparison.is_proved ? " in fp64" : ""));
  print_notes(comparison);
  const Probe* const first = comparison.first();
  switch (finding) {
    case Finding::kSame: print_line("SAME     every bit of A and B is the same"); return;
    case Finding::kRounding:
      print_line(comparison.is_proved
                     ? "ROUNDING the differences of A and B shrink with the precision"
                     : "ROUNDING the differences of A and B are as those of roundoffs; not proved");
      return;
    case Finding::kUndecided:
      print_line(concat("UNDECIDED first at ", title_of(*first), ": ",
                        difference_text(*first, comparison.is_proved)));
      return;
    case Finding::kBug:
      print_line(concat("BUG      ", comparison.is_proved ? "" : "(not proved) ", "first at ",
                        title_of(*first), ": ", difference_text(*first, comparison.is_proved)));
      return;
  }
}

int code_of(Finding finding) {
  if (finding == Finding::kBug) return kBug;
  return finding == Finding::kUndecided ? kUndecidedCode : kDone;
}

// Nothing else can be compared: the run has not recorded the step.
Comparison of_unequal_copies(const TwinOptions& options, const UnequalCopies& found) {
  Comparison comparison;
  comparison.is_proved = options.tier == Tier::kFp64;
  comparison.num_probes = 1;
  comparison.probes.push_back({.step = options.start ? options.start->step + 1 : 1,
                               .kind = verify::ProbeKind::kGradient,
                               .name = found.tensor(),
                               .finding = Finding::kBug,
                               .note = found.what()});
  return comparison;
}

int verify_layouts(const VerifyArguments& arguments, const train::Offer& offer) {
  TwinOptions options = options_of(arguments, offer);
  if (!arguments.reference.batch.empty()) {
    const int64_t samples = write_first_batch(options, arguments.reference.batch);
    print_line(concat("wrote    ", arguments.reference.batch, ": ", samples,
                      " samples of A's first step"));
    return kDone;
  }
  if (!arguments.reference.folder.empty()) prepare_for_reference(options);
  const auto on_run = [&](const TwinRun& run, double seconds) {
    if (arguments.json || seconds == 0) return;
    print_line(concat("run      ", title_of(run), ": ", options.steps, " steps in ",
                      human_duration(seconds), ", ", run.folder.string()));
    std::fflush(stdout);
  };
  const auto on_note = [&](const std::string& note) {
    if (!arguments.json) print_line("common   " + note);
  };
  Comparison comparison;
  try {
    const std::vector<TwinRun> twins =
        arguments.reference.folder.empty()
            ? train_twins(options, on_run)
            : train_beside_reference(options, arguments.reference, on_run, on_note);
    comparison =
        compare_twins(twins, options.tier, arguments.json ? TellProgress::kNo : TellProgress::kYes);
    TRIREME_CHECK(comparison.num_steps == options.steps, "only ", comparison.num_steps, " of ",
                  options.steps, " steps were recorded, see ", arguments.output,
                  "; expected runs of at least that many train.steps");
  } catch (const UnequalCopies& found) {
    comparison = of_unequal_copies(options, found);
  }
  if (!arguments.html.empty())
    write_verify_page(comparison, names_of(options, arguments.reference.folder), arguments.html);
  if (arguments.json) {
    std::printf("%s\n", json_text(to_json(comparison)).c_str());
  } else {
    print(comparison, arguments.shown);
  }
  return code_of(comparison.finding());
}

CLI::Validator is_tier() {
  return {[](const std::string& text) {
            if (text == "1" || text == "3") return std::string();
            return concat(printable(text),
                          " is none: 1 proves, by fp64, also what a replay of B's ranks (2) could "
                          "show; 3 is for what cannot run in fp64");
          },
          "{1,3}"};
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<VerifyArguments>();
  const std::string name = app.get_name();
  CLI::App* command = app.add_subcommand(
      "verify",
      concat("Find out whether two layouts differ by rounding or by a bug. Trains a few steps of\n"
             "both in fp32 and in fp64 and compares activations, losses, gradients, optimizer\n"
             "states and weights: rounding shrinks with the precision, a mistake stays.\n  ",
             name,
             " verify examples/demo.toml --ranks-b 2 --b parallel.tensor=2 "
             "--model.vocab_size=4096\n  ",
             name, " verify a.toml b.toml --ranks-a 4 --ranks-b 4 --steps 2\n  ", name,
             " verify runs/big --layout tensor=2 --ranks-b 4\n  ", name,
             " verify a.toml --reference recorded\n",
             "Keys of the config can be given for both sides: --train.micro_batch=2. See\n"
             "docs/guide/verify.md.\n"));
  command
      ->add_option("A", arguments->a, "config of the side that is believed, or the folder of a run")
      ->required();
  command->add_option("B", arguments->b, "config of the other side; without it A's");
  command->add_option("--a", arguments->only_a, "KEY=VALUE for A alone; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--b", arguments->only_b, "KEY=VALUE for B alone; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks-a", arguments->ranks_a,
                   "ranks of A on this machine; by default 1, or as many as the run had")
      ->check(within({1, 4096}));
  command
      ->add_option("--ranks-b", arguments->ranks_b,
                   "ranks of B on this machine; by default 1, or as many as the run had")
      ->check(within({1, 4096}));
  command
      ->add_option("--layout", arguments->layout,
                   "A is a run: KEY=VALUE of [parallel] for B, which goes on from the same "
                   "checkpoint; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--from-step", arguments->from_step,
                   "A is a run: newest checkpoint to begin at; by default its newest")
      ->check(within({1, 1e11}));
  command->add_option("--steps", arguments->steps, "steps to compare")
      ->check(within({1, 1000}))
      ->capture_default_str();
  command
      ->add_option("--output", arguments->output,
                   "new or empty folder for the four runs and what they print")
      ->capture_default_str();
  command
      ->add_option("--tier", arguments->tier,
                   "1: judge by the same runs in fp64, which proves; 3: in the config's own\n"
                   "precision by runs of A with roundoffs, which does not, for what has no fp64")
      ->check(is_tier())
      ->capture_default_str();
  command
      ->add_option("--activations", arguments->activations,
                   "steps of which activations are compared too; 0: none, which needs less disk")
      ->check(within({0, 1000}))
      ->capture_default_str();
  command->add_option("--html", arguments->html,
                      "also write the comparison to this file, as a page without requests");
  command->add_option("--shown", arguments->shown, "most differences to list")
      ->check(within({0, 1e6}))
      ->capture_default_str();
  add_reference_options(*command, arguments->reference);
  add_json(*command, arguments->json);
  command->footer(
      "Exit codes: 0 the same bits or rounding, 1 a bug, 2 undecided, or an error you can fix.\n"
      "The first probe that differs is the nearest to the cause: a step makes its activations, "
      "its\n"
      "loss, then the gradients from the last layer to the first, their norm, states and "
      "weights.\n");
  command->allow_extras();
  command->callback([arguments, command, offer, &exit_code] {
    arguments->both = command->remaining();
    exit_code = verify_layouts(*arguments, offer);
  });
}

}  // namespace trireme::cli
