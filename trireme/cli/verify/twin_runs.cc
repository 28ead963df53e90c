#include "trireme/cli/verify/twin_runs.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/replicas_differ.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/verify/child_run.h"
#include "trireme/train/state/resume.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kPrecisions[] = {"fp32", "fp64"};
constexpr std::string_view kOwnPrecision = "own";
// What a resumed run may change, and two runs that are to compute the same may not.
constexpr std::string_view kAlsoTheSame[] = {"train.steps",
                                             "train.epochs",
                                             "train.global_batch",
                                             "train.batch_ramp_start",
                                             "train.batch_ramp_steps",
                                             "train.gradient_clip",
                                             "train.compression",
                                             "train.gradient_sum",
                                             "parallel.staleness"};

bool must_be_the_same(const train::Change& change, Tier tier) {
  if (change.key == "train.precision") return tier == Tier::kBound;  // else that of the comparison
  return change.rule == OnResume::kMustStay || change.key.starts_with("optimizer.") ||
         std::ranges::find(kAlsoTheSame, change.key) != std::end(kAlsoTheSame);
}

train::RunConfig config_of(const TwinSide& side, const train::Offer& offer) {
  return train::load_config(side.config, offer, parse_overrides(side.overrides));
}

// A's run in the precision of `run`; empty: it is this one.
fs::path believed_folder(const TwinOptions& options, const TwinRun& run) {
  if (run.side == "A" && run.perturb == 0) return {};
  return options.folder / concat("a-", run.precision);
}

c10::ScalarType precision_of(const TwinOptions& options, const TwinRun& run) {
  if (run.precision == kOwnPrecision) return options.start->config.train.precision;
  return run.precision == kPrecisions[0] ? c10::kFloat : c10::kDouble;
}

std::vector<TwinRun> planned_runs(const TwinOptions& options) {
  std::vector<TwinRun> runs;
  const auto add = [&](const TwinSide& side, std::string_view precision, int64_t perturb) {
    if (options.only_a && &side == &options.b) return;
    std::string folder = concat(side.name == "A" ? "a-" : "b-", precision);
    if (perturb != 0) folder += concat("-", perturb);
    runs.push_back({side.name, std::string(precision), options.folder / folder, perturb});
  };
  if (options.tier == Tier::kFp64) {
    for (const std::string_view precision : kPrecisions) {
      for (const TwinSide* const side : {&options.a, &options.b}) add(*side, precision, 0);
    }
    return runs;
  }
  for (const TwinSide* const side : {&options.a, &options.b}) add(*side, kOwnPrecision, 0);
  for (int64_t seed = 1; seed <= kPerturbedRuns; ++seed) add(options.a, kOwnPrecision, seed);
  return runs;
}

std::vector<std::string> command_of(const TwinOptions& options, const TwinRun& run) {
  const TwinSide& side = run.side == "A" ? options.a : options.b;
  const bool goes_on = options.start.has_value();
  std::vector<std::string> words = {
      goes_on ? (run.folder / train::kConfigName).string() : side.config, "--ranks",
      std::to_string(side.num_ranks)};
  words.insert(words.end(), side.overrides.begin(), side.overrides.end());
  const std::vector<std::string> undisturbed = undisturbed_keys();
  words.insert(words.end(), undisturbed.begin(), undisturbed.end());
  const int64_t before = goes_on ? options.start->step : 0;
  // Roundoffs are in the steps that are recorded.
  const int64_t recorded =
      options.tier == Tier::kBound ? options.steps : std::min(options.activations, options.steps);
  const int64_t activations = recorded > 0 ? before + recorded : 0;
  for (const auto& [key, value] :
       {std::pair("record.gradients", std::to_string(before + options.steps)),
        std::pair("record.activations", std::to_string(activations)),
        std::pair("record.choices",
                  activations > 0 ? believed_folder(options, run).string() : std::string()),
        std::pair("record.perturb", std::to_string(run.perturb)),
        std::pair("record.end", std::string("true")),
        std::pair("checkpoint.interval", std::string("1")),
        // Copies that differ are a finding: their gradients or what they compute in the next step.
        std::pair("checkpoint.compare_replicas", std::string("false")),
        std::pair("checkpoint.keep", std::to_string(options.steps)),
        std::pair("output.folder", run.folder.string())}) {
    words.push_back(concat("--", key, "=", value));
  }
  if (run.precision != kOwnPrecision) words.push_back(concat("--train.precision=", run.precision));
  // The checkpoint is in that precision already.
  if (goes_on) words.emplace_back("--resume.allow=train.precision");
  return words;
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t sum = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) sum += entry.file_size();
  }
  return sum;
}

// Before the second of the runs, when the size of the first is known: one in fp64 takes twice that.
void check_room(const fs::path& folder, std::span<const TwinRun> runs) {
  uint64_t times = 0;
  for (const TwinRun& run : runs.subspan(1)) times += run.precision == kPrecisions[1] ? 2 : 1;
  const uint64_t wanted = times * bytes_below(runs.front().folder);
  const uint64_t free = fs::space(folder).available;
  TRIREME_CHECK(free > wanted, folder.string(), " has ", human_bytes(static_cast<double>(free)),
                " free, and the other runs need ", human_bytes(static_cast<double>(wanted)),
                "; give another --output or fewer --steps");
}

[[noreturn]] void fail(const TwinRun& run, int code, const fs::path& log) {
  const std::string line = last_line(log);
  if (const auto found = parse_replicas_differ(line)) {
    throw UnequalCopies(concat(title_of(run), " has ended: ", to_string(*found)), found->tensor);
  }
  TRIREME_CHECK(false, title_of(run), " ended with code ", code, ": ", line, " (", log.string(),
                ")");
}

}  // namespace

std::string title_of(const TwinRun& run) {
  const std::string precision =
      run.precision == kOwnPrecision ? "its own precision" : run.precision;
  return concat(run.side, " in ", precision,
                run.perturb == 0 ? "" : concat(", with roundoffs ", run.perturb));
}

void check_sides(const TwinOptions& options) {
  std::string differing;
  for (const train::Change& change :
       train::changes(config_of(options.a, options.offer), config_of(options.b, options.offer))) {
    if (!must_be_the_same(change, options.tier)) continue;
    differing += concat(differing.empty() ? "" : ", ", change.key, " ", change.before, " in A, ",
                        change.after, " in B");
  }
  TRIREME_CHECK(differing.empty(), "A and B are to compute different things: ", differing,
                "; expected configs that differ in how they compute, such as in [parallel]");
}

std::vector<TwinRun> train_twins(
    const TwinOptions& options,
    const std::function<void(const TwinRun& run, double seconds)>& on_run) {
  check_sides(options);
  fs::create_directories(options.folder);
  GroupGuard guard;
  const std::vector<TwinRun> runs = planned_runs(options);
  for (const TwinRun& run : runs) {
    TRIREME_CHECK(!fs::exists(run.folder), run.folder.string(),
                  " exists; remove it, or give another --output");
    if (&run == &runs[1]) check_room(options.folder, runs);
    if (options.start) begin_at(*options.start, run.folder, precision_of(options, run));
    on_run(run, 0);
    const auto start = Clock::now();
    const fs::path log = run.folder.string() + ".log";
    const int code = run_training(command_of(options, run), log, guard);
    if (code != kDone) fail(run, code, log);
    on_run(run, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return runs;
}

}  // namespace trireme::cli
