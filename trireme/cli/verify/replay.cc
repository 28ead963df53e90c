// trireme replay: a step of a run again, operator by operator.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/verify/child_run.h"
#include "trireme/cli/verify/starting_point.h"
#include "trireme/train/callbacks/step_examination.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ReplayArguments {
  std::string run;
  int64_t step = 0;
  int ranks = 1;
  double spike = 0;
  std::string output;  // "": in the run's folder
  bool json = false;
  std::vector<std::string> keys;  // as typed
};

// How far the replayed steps are from those of the run.
struct Agreement {
  bool is_promised = false;  // that the bits are the same
  int64_t num_steps = 0;     // that both have
  int64_t differing_step = 0;
  double largest = 0;  // relative difference
};

bool promises_bits(const StartingPoint& start, const ReplayArguments& arguments) {
  const auto is_of_data = [](const train::Override& key) { return key.first.starts_with("data."); };
  if (!std::ranges::all_of(parse_overrides(arguments.keys), is_of_data)) return false;
  const auto& parallel = start.config.parallel;
  const bool sums_differ = parallel.tensor > 1 || parallel.context > 1 || parallel.expert > 1;
  return arguments.ranks == start.num_ranks || (start.config.train.reproducible && !sums_differ);
}

Agreement compare_steps(const fs::path& run, const fs::path& replayed, int64_t begin, int64_t end,
                        bool is_promised) {
  // An imported run has taken no step, and a replayed one may end in its first.
  const auto numbers_of = [](const fs::path& folder) {
    return fs::exists(folder / train::kMetricsName) ? verify::read_step_numbers(folder)
                                                    : verify::StepNumbers();
  };
  const verify::StepNumbers before = numbers_of(run), now = numbers_of(replayed);
  Agreement agreement{.is_promised = is_promised};
  for (int64_t step = begin; step < end; ++step) {
    const auto a = before.find(step), b = now.find(step);
    if (a == before.end() || b == now.end()) continue;
    ++agreement.num_steps;
    for (const char* name : {"loss", "grad_norm"}) {
      const auto x = a->second.find(name), y = b->second.find(name);
      if (x == a->second.end() || y == b->second.end() || x->second == y->second) continue;
      const double scale = std::max(std::abs(x->second), std::abs(y->second));
      agreement.largest = std::max(agreement.largest, std::abs(x->second - y->second) / scale);
      if (agreement.differing_step == 0) agreement.differing_step = step;
    }
  }
  return agreement;
}

// What the ranks have found, the earliest operator first.
struct Examined {
  int num_reports = 0;  // of ranks that have made the step, or a part of it
  int64_t num_operators = 0;
  int rank = -1;  // -1: none has found anything
  json finding{};
};

Examined read_examined(const fs::path& folder, int num_ranks) {
  Examined examined;
  int64_t earliest = INT64_MAX;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const fs::path path = train::examined_file(folder, rank);
    if (!fs::exists(path)) continue;
    const json report = parse_json(read_file(path, uint64_t{16} << 20), path.string());
    const JsonView view(report, path.string());
    ++examined.num_reports;
    examined.num_operators += view.at("operators").integer(0);
    if (!report.contains("finding")) continue;
    const int64_t number = view.at("finding").at("number").integer(0);
    if (number >= earliest) continue;
    earliest = number;
    examined.rank = rank;
    examined.finding = report.at("finding");
  }
  return examined;
}

std::vector<std::string> words_of(const ReplayArguments& arguments, const fs::path& folder,
                                  bool keeps_layout) {
  std::vector<std::string> words = {(folder / train::kConfigName).string(), "--ranks",
                                    std::to_string(arguments.ranks)};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(undisturbed_keys());
  if (!keeps_layout) add(plain_layout_keys());
  add({concat("--output.folder=", folder.string()), "--checkpoint.interval=0",
       concat("--examine.step=", arguments.step)});
  if (arguments.spike > 0) add({format("--examine.spike=%.17g", arguments.spike)});
  add(arguments.keys);
  return words;
}

std::string in_words(const std::string& what) {
  if (what == "nan") return "the first NaN";
  if (what == "infinity") return "the first infinity";
  if (what == "spike") return "the first spike";
  return "a NaN that no libtorch operator has made";
}

void print_line(const std::string& line) {
  std::printf("%s\n", wrapped_line(line, output_columns()).c_str());
}

std::string place_of(const json& finding) {
  const std::string unit = finding.at("unit").get<std::string>();
  std::string text = finding.at("operator").get<std::string>();
  const auto within = finding.at("within").get<std::vector<std::string>>();
  if (!within.empty()) text += concat(" in ", within.front());
  if (unit.empty()) return text;
  text += finding.at("backward").get<bool>() ? ", backward of " : ", ";
  if (!finding.at("reads_unit").get<bool>()) text += "after ";
  return text + unit;
}

void print_tensor(const char* title, const json& tensor) {
  std::string shape;
  for (const json& size : tensor.at("shape")) shape += (shape.empty() ? "" : ", ") + size.dump();
  const auto number = [&](const char* name) { return tensor.at(name).get<double>(); };
  std::string text = concat(title, "   ", tensor.at("name").get<std::string>(), " ",
                            tensor.at("dtype").get<std::string>(), " [", shape, "]: from ",
                            format("%.4g to %.4g, mean magnitude %.4g", number("minimum"),
                                   number("maximum"), number("mean_magnitude")));
  if (number("nan") > 0) text += format(", %.0f NaN", number("nan"));
  if (number("infinite") > 0) text += format(", %.0f infinite", number("infinite"));
  print_line(text);
}

void print(const StartingPoint& start, const ReplayArguments& arguments, const fs::path& folder,
           const Agreement& agreement, const Examined& examined) {
  if (agreement.num_steps > 0) {
    print_line(concat(
        "compare ", agreement.num_steps, " steps with those of the run: ",
        agreement.largest == 0
            ? "the same bits in loss and norm"
            : format("loss and norm differ by at most %.2g of their size", agreement.largest)));
  }
  if (agreement.is_promised && agreement.differing_step > 0) {
    print_line(concat("DIFFERS at step ", agreement.differing_step, ": the same bits as in ",
                      start.run.string(), " were expected, because ",
                      arguments.ranks == start.num_ranks ? "the layout is the same"
                                                         : "train.reproducible is true"));
  }
  if (examined.rank < 0) {
    print_line(concat("NOTHING ", examined.num_operators, " operators of step ", arguments.step,
                      " gave finite values", arguments.spike > 0 ? " without a spike" : ""));
    return;
  }
  const json& finding = examined.finding;
  for (const json& tensor : finding.at("inputs")) print_tensor("input", tensor);
  for (const auto& [name, value] : finding.at("numbers").items())
    print_line(concat("input   ", name, " = ", value.get<std::string>()));
  for (const json& tensor : finding.at("outputs")) print_tensor("gave ", tensor);
  print_line(concat("saved   ", train::examined_inputs(folder, examined.rank).string(),
                    ": the inputs as they were before"));
  print_line(concat("FOUND   ", in_words(finding.at("what").get<std::string>()), " of step ",
                    arguments.step, ": ", place_of(finding), ", operator ",
                    finding.at("number").get<int64_t>(), " of the step on rank ", examined.rank));
}

int replay(const ReplayArguments& arguments, const train::Offer& offer) {
  const fs::path run = arguments.run;
  const int64_t steps_before = arguments.spike > 0 ? 2 : 1;
  const StartingPoint start = find_start(run, arguments.step - steps_before, offer);
  refuse_learners(start);
  const fs::path folder = arguments.output.empty()
                              ? run / "replay" / checkpoint::folder_name(arguments.step)
                              : fs::path(arguments.output);
  TRIREME_CHECK(!fs::exists(folder), folder.string(),
                " exists; remove it, or give another --output");
  fs::create_directories(fs::absolute(folder).parent_path());
  begin_at(start, folder, start.config.train.precision);
  const bool keeps_layout = arguments.ranks == start.num_ranks;
  if (!arguments.json) {
    print_line(concat("replay  steps ", start.step + 1, " to ", arguments.step, " of ",
                      run.string(), " on ", arguments.ranks,
                      arguments.ranks == 1 ? " rank" : " ranks", ", saved by ", start.num_ranks));
    std::fflush(stdout);
  }
  GroupGuard guard;
  const fs::path log = folder / "replay.log";
  const int code = run_training(words_of(arguments, folder, keeps_layout), log, guard);
  const Examined examined = read_examined(folder, arguments.ranks);
  TRIREME_CHECK(code != kDone || examined.num_reports > 0, "the replay ended before step ",
                arguments.step, ", see ", log.string(), "; expected a step of the run, up to ",
                start.config.train.steps);
  // A step whose loss is not finite ends the run with an error.
  TRIREME_CHECK(code == kDone || examined.rank >= 0, "the replay ended with code ", code, ": ",
                last_line(log), " (", log.string(), ")");
  const Agreement agreement = compare_steps(run, folder, start.step + 1, arguments.step + 1,
                                            promises_bits(start, arguments));
  fs::remove_all(folder / "checkpoints");  // of the last step; and the link to the run's
  const bool differs = agreement.is_promised && agreement.differing_step > 0;
  if (arguments.json) {
    json object = {{"step", arguments.step},
                   {"from_step", start.step},
                   {"folder", folder.string()},
                   {"operators", examined.num_operators},
                   {"compared_steps", agreement.num_steps},
                   {"largest_difference", agreement.largest},
                   {"same_bits_promised", agreement.is_promised},
                   {"differing_step", agreement.differing_step}};
    if (examined.rank >= 0) {
      object["finding"] = examined.finding;
      object["finding"]["rank"] = examined.rank;
      object["finding"]["file"] = train::examined_inputs(folder, examined.rank).string();
    }
    std::printf("%s\n", json_text(object).c_str());
  } else {
    print(start, arguments, folder, agreement, examined);
  }
  return differs || examined.rank >= 0 ? kBug : kDone;
}

}  // namespace

void add_replay(CLI::App& app, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<ReplayArguments>();
  const std::string name = app.get_name();
  CLI::App* command = app.add_subcommand(
      "replay",
      concat(
          "Find the operator that made the first NaN, infinity or spike of a step. Takes the\n"
          "run's nearest checkpoint before the step, makes its steps again on this machine,\n"
          "with the same data and random numbers, and looks at what every operator of\n"
          "libtorch computes. The operator's inputs are saved.\n  ",
          name, " replay runs/big --step 1234\n  ", name,
          " replay runs/big --step 1234 --ranks 4 --spike 100\n",
          "On the run's own number of ranks its layout is kept; on any other the model is whole\n"
          "on each. Keys of the config can be given: --data.path=data/copy. See\n"
          "docs/guide/verify.md.\n"));
  command->add_option("RUN", arguments->run, "folder of the run")->required();
  command->add_option("--step", arguments->step, "the step to look at")
      ->required()
      ->check(within({1, 1e11}));
  command->add_option("--ranks", arguments->ranks, "ranks on this machine")
      ->check(within({1, 4096}))
      ->capture_default_str();
  command
      ->add_option("--spike", arguments->spike,
                   "also look for a result this many times as large as the same operator's one "
                   "step before; 0 = only NaN and infinities")
      ->check(within({0, 1e30}))
      ->capture_default_str();
  command->add_option("--output", arguments->output,
                      "new folder for the replayed run; by default in RUN/replay");
  add_json(*command, arguments->json);
  command->footer(
      "Exit codes: 0 every value is finite, 1 an operator was found, or bits differ that were\n"
      "promised, 2 an error you can fix, such as no checkpoint before the step.\n"
      "With train.reproducible, or in the run's own layout, loss and norm of the steps must have\n"
      "the bits that the run wrote.\n");
  command->allow_extras();
  command->callback([arguments, command, offer, &exit_code] {
    arguments->keys = command->remaining();
    exit_code = replay(*arguments, offer);
  });
}

}  // namespace trireme::cli
