#include "trireme/cli/verify/twin_runs.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
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

// How the samples of a step are shared out among forwards.
struct Forwards {
  bool is_known = false;  // otherwise the planner chooses the layout when the run begins
  int64_t micro_batch = 0;
  int64_t ranks = 0;         // that read samples of their own
  int64_t global_batch = 0;  // of one learner, if there are several
  bool operator==(const Forwards&) const = default;

  bool are_whole_steps() const { return is_known && micro_batch * ranks >= global_batch; }
  // The least train.micro_batch with which they are.
  int64_t micro_batch_of_step() const { return (global_batch + ranks - 1) / ranks; }
  std::string in_words() const {
    if (!is_known) return "chosen by the planner";
    return concat("of ", micro_batch, ranks > 1 ? concat(" x ", ranks) : "", " samples");
  }
};

// The config that the side's run begins with.
train::RunConfig started_config(const TwinOptions& options, const TwinSide& side) {
  if (!options.start) return config_of(side, options.offer);
  train::RunConfig config = options.start->config;  // for any number of data ranks
  train::override_keys(config, parse_overrides(side.overrides));
  return config;
}

// Empty when the layout cannot be: the side's own run says why.
std::optional<Forwards> forwards_of(train::RunConfig config, int num_ranks) {
  if (config.has_choices()) return Forwards{};
  try {
    train::resolve(config, num_ranks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  return Forwards{.is_known = true,
                  .micro_batch = config.train.micro_batch,
                  .ranks = train::sample_ranks(config.parallel),
                  .global_batch = config.train.global_batch / config.parallel.learners};
}

// False also when the data cannot be read, which A's own run says.
bool has_batch_norm(train::RunConfig config) {
  try {
    config.task->open(/*evaluates=*/false);
    return config.task->model().traits().has_batch_norm;
  } catch (const Error&) {
    return false;
  }
}

// Batch norm's statistics are those of the samples of one forward on all data ranks. A rank reads
// samples that follow each other, so that forwards of as many samples are not of the same ones.
void check_batch_norms(const TwinOptions& options, const train::RunConfig& config_a,
                       const train::RunConfig& config_b) {
  const std::optional<Forwards> a = forwards_of(config_a, options.a.num_ranks);
  const std::optional<Forwards> b = forwards_of(config_b, options.b.num_ranks);
  if (!a || !b || (a->are_whole_steps() && b->are_whole_steps())) return;
  if ((a->is_known && *a == *b) || !has_batch_norm(config_a)) return;
  const auto keys = [&] {
    if (!a->is_known || !b->is_known) return std::string("set parallel and train.micro_batch so");
    const bool is_even = a->global_batch % a->ranks == 0 && b->global_batch % b->ranks == 0;
    return concat("give --a train.micro_batch=", a->micro_batch_of_step(),
                  " --b train.micro_batch=", b->micro_batch_of_step(),
                  is_even ? "" : " --train.uneven_batches=true");
  };
  throw ConfigError(concat(
      "A and B are to compute different things: batch norm takes its statistics over the samples "
      "of a forward, ",
      a->in_words(), " in A, ", b->in_words(),
      " in B; expected forwards of the same samples, such as those of a whole step: ", keys()));
}

// Learners are compared one by one: what they exchange is to depend on the samples alone.
void check_learners(const TwinOptions& options, const train::RunConfig& a,
                    const train::RunConfig& b) {
  const int64_t learners = a.parallel.learners;
  if (learners == 1 && b.parallel.learners == 1) return;
  const auto words = [](int64_t number) {
    return number == 0 ? std::string("\"hosts\"") : std::to_string(number);
  };
  TRIREME_CHECK(!options.only_a, "parallel.learners is ", words(learners),
                ", and a reference is one model's step; expected 1");
  TRIREME_CHECK(
      learners == b.parallel.learners, "parallel.learners is ", words(learners), " in A and ",
      words(b.parallel.learners),
      " in B, and each learner is compared with the same one of the other side, which has "
      "the same samples; expected as many in both");
  TRIREME_CHECK(!a.outer.meets() && !b.outer.meets(),
                "outer.meeting is set, and learners that are runs of their own cannot be compared; "
                "leave it out: learners that are ranks of one run compute the same");
  TRIREME_CHECK(
      !a.outer.is_decoupled(),
      "outer.method is \"decoupled\", whose weights depend on which learners are in time; "
      "use \"diloco\", which computes the same when all are");
  TRIREME_CHECK(a.outer.wire == parallel::WireCode::kFloat32 && a.outer.kept == 1,
                "outer.wire is \"", name_of(train::kOuterWires, a.outer.wire), "\" and outer.kept ",
                a.outer.kept,
                ", and what messages lose depends on how a learner's ranks share the model; use "
                "fp32 and 1 to compare layouts");
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
  const train::RunConfig a = started_config(options, options.a);
  const train::RunConfig b = started_config(options, options.b);
  check_learners(options, a, b);
  TRIREME_CHECK(differing.empty(), "A and B are to compute different things: ", differing,
                "; expected configs that differ in how they compute, such as in [parallel]");
  if (!options.only_a) check_batch_norms(options, a, b);
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
