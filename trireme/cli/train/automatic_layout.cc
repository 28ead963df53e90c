#include "trireme/cli/train/automatic_layout.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/device_rates.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/train/annotated_plan.h"
#include "trireme/cli/train/key_choice.h"
#include "trireme/cli/train/prediction_file.h"
#include "trireme/comm/objects.h"
#include "trireme/plan/step/learner_prediction.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

constexpr double kSecondsToMeasure = 0.05;

struct Choice {
  std::vector<train::Override> keys{};
  std::string line{};
};

void check_learners(const train::RunConfig& config) {
  TRIREME_CHECK(config.parallel.learners == 1,
                "parallel.auto with parallel.learners = ", config.parallel.learners,
                ": ranks choose a layout for one learner; take it from `trireme plan`, or set "
                "parallel.auto to false");
}

plan::SearchResult best_layout(const train::RunConfig& config, const plan::Cluster& cluster,
                               int num_ranks) {
  check_learners(config);
  plan::SearchResult found = search_layouts(config, cluster, {.num_best = 1});
  TRIREME_CHECK(!found.best.empty(), "parallel.auto: ", describe_failure(found, cluster));
  TRIREME_CHECK(found.best.front().work.axes.num_ranks() == num_ranks,
                "parallel.auto finds a layout of at most ",
                found.best.front().work.axes.num_ranks(), " of the ", num_ranks,
                " ranks for train.global_batch = ", config.train.global_batch,
                "; start so many, or choose another batch");
  return found;
}

// What the planner has chosen for keys that the config leaves open.
struct Found {
  std::vector<train::Override> keys{};
  std::string what{};  // in words
  double step_seconds = 0;
  double rank_bytes = 0;
  std::string among{};
};

Found find(const train::RunConfig& config, const plan::Cluster& cluster, int num_ranks) {
  if (config.parallel.automatic && annotated_task_of(config)) {
    check_learners(config);
    AnnotatedChoice found = choose_annotated(config, cluster, num_ranks);
    return {std::move(found.keys), found.what, found.step_seconds, found.kept_bytes,
            concat(found.num_candidates, " layouts")};
  }
  if (config.parallel.automatic) {
    const plan::SearchResult found = best_layout(config, cluster, num_ranks);
    const plan::Plan& best = found.best.front();
    return {plan::settings_of(best.work), describe(best.work), best.step.step_seconds(),
            best.step.memory.total(), concat(found.num_candidates, " layouts")};
  }
  const KeyChoice found = choose_keys(config, cluster, num_ranks);
  return {chosen_values(config, found.config), describe_values(config, found.config),
          found.plan.step.step_seconds(), found.plan.step.memory.total(),
          concat(found.num_candidates)};
}

// What was chosen for the run that has begun in output.folder. Nothing when there is none, or when
// this run cannot use it.
std::optional<Choice> begun_choice(const train::RunConfig& config, int num_ranks) {
  const std::filesystem::path folder = config.output.folder;
  const std::filesystem::path path = folder / train::kConfigName;
  const auto chosen = [](std::vector<train::Override> keys, const std::string& kind,
                         const std::string& what) {
    return Choice{std::move(keys),
                  concat("plan    the ", kind, " with which the run has begun: ", what)};
  };
  try {
    const train::RunConfig begun =
        train::parse_saved_config(read_file(path), path.string(), config);
    if (config.parallel.automatic && annotated_task_of(config)) {
      AnnotatedChoice choice = annotated_choice_of(begun);
      train::RunConfig kept = with_layout(config, choice.keys);
      train::resolve(kept, num_ranks);  // as many ranks
      train::check_layout(kept);
      return chosen(std::move(choice.keys), "layout", choice.what);
    }
    train::RunConfig merged = config;
    merged.parallel = begun.parallel;
    if (config.parallel.automatic) {
      merged.train.micro_batch = begun.train.micro_batch;
      merged.train.recompute = begun.train.recompute;
      merged.train.recompute_blocks = merged.offload.activation_blocks = 0;  // as with_layout()
      const plan::Workload work = resolve_on(merged, num_ranks);
      return chosen(plan::settings_of(work), "layout", describe(work));
    }
    // A microbatch with which no step has ended may have been too large.
    if (std::filesystem::file_size(folder / train::kMetricsName) == 0) return std::nullopt;
    // Where to keep inputs is the user's, and may have changed.
    const bool chooses_recompute = config.train.recompute == model::Recompute::kAuto;
    if (chooses_recompute && begun.offload.activations != config.offload.activations)
      return std::nullopt;
    std::vector<train::Override> keys = chosen_values(config, begun);
    train::override_keys(merged, keys);
    resolve_on(merged, num_ranks);  // as many ranks
    merged.parallel = config.parallel;
    resolve_on(merged, num_ranks);
    std::vector<std::string> kinds;
    if (config.train.micro_batch == 0) kinds.emplace_back("microbatch");
    if (chooses_recompute) kinds.emplace_back("recomputation");
    return chosen(std::move(keys), kinds.size() == 1 ? kinds[0] : "keys",
                  describe_values(config, begun));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Choice choose(const train::RunConfig& config, const RankFacts& facts, int num_ranks) {
  if (std::optional<Choice> begun = begun_choice(config, num_ranks)) return *std::move(begun);
  const auto start = std::chrono::steady_clock::now();
  Found found = find(config, cluster_of_ranks(config, facts, num_ranks), num_ranks);
  return {
      std::move(found.keys),
      concat("plan    ", found.what, ": predicted ", format("%.3f s a step, ", found.step_seconds),
             human_bytes(found.rank_bytes), " per rank; the best of ", found.among,
             format(", searched in %.2f s", seconds_since(start)))};
}

// Lines: what the user reads, then key=value.
std::string to_text(const Choice& choice) {
  std::string text = choice.line;
  for (const auto& [key, value] : choice.keys) text += concat("\n", key, "=", value);
  return text;
}

train::RunConfig with_choices(const train::RunConfig& given,
                              const std::vector<train::Override>& chosen) {
  if (given.parallel.automatic) return with_layout(given, chosen);
  train::RunConfig config = given;
  train::override_keys(config, chosen);
  return config;
}

constexpr double kSecondsPerRate = 0.02;
constexpr double kWorthMeasuring = 20;  // seconds of training

}  // namespace

AutomaticLayout choose_layout(const train::RunConfig& given, comm::Communicator& group) {
  train::RunConfig config = given;
  const RankFacts facts = *measure_ranks(config, group, {.seconds = kSecondsToMeasure});
  // Data that is slow to open and a long search are waited for.
  TextReader lines(checkpoint::from_root(group, [&](const checkpoint::Peers&) {
    config.task->open(/*evaluates=*/false);
    return to_text(choose(config, facts, group.size()));
  }));
  AutomaticLayout layout{.config = config};
  std::getline(lines, layout.line);
  std::vector<train::Override> chosen;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    chosen.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  layout.config = with_choices(given, chosen);
  return layout;
}

train::RunConfig with_any_layout(const train::RunConfig& given, int num_ranks) {
  if (!given.has_choices()) return given;
  train::RunConfig config = given;
  config.task->open(/*evaluates=*/false);
  const Found found = find(config, assumed_cluster(config, num_ranks), num_ranks);
  return with_choices(given, found.keys);
}

RunRecord::RunRecord() : resident_at_start_(resident_after_little()) {}

void RunRecord::begin(const train::RunConfig& config) {
  offload_ = config.offload;
  work_ = config.task->model().workload(config);
  if (!work_) return write_prediction(config, {});
  layout_ = runtime_stages(config);
  learners_ = config.learners_here();
  // The cost model covers only ranks that train, and a ledger does not see the memory of GPUs.
  const bool is_known = config.parallel.servers == 0 && config.parallel.teachers == 0 &&
                        config.parallel.learners == 1 && config.device.is_cpu();
  if (!is_known || config.parallel.cluster == "none") return write_prediction(config, {});
  planned_memory_ = plan_memory(config);
  write_prediction(config, {.step_seconds = planned_seconds(config), .memory = planned_memory_});
}

// Before training only a cluster that a file describes has rates.
std::optional<double> RunRecord::planned_seconds(const train::RunConfig& config) const {
  if (need_measuring(config)) return std::nullopt;
  try {
    const int num_ranks = static_cast<int>(work_->axes.num_ranks());
    return prediction_on(cluster_of_ranks(config, {}, num_ranks)).step_seconds();
  } catch (const ConfigError&) {
    return std::nullopt;  // compare_with_prediction() says why
  }
}

// Rates do not matter to memory, so none are measured.
std::optional<BytesByKind> RunRecord::plan_memory(const train::RunConfig& config) const {
  try {
    plan::Workload work = *work_;
    plan::Cluster cluster = assumed_cluster(config, static_cast<int>(work.axes.num_ranks()));
    set_offload(offload_, work, cluster);
    return predict_step(work, cluster, layout_).memory.by_kind();
  } catch (const ConfigError&) {
    return std::nullopt;  // compare_with_prediction() says why
  }
}

std::string RunRecord::planned_memory() const {
  return planned_memory_ ? planned_lines(*planned_memory_) : "";
}

std::string RunRecord::measured_memory() const {
  return memory_ ? memory_table(planned_memory_, *memory_) : "";
}

void RunRecord::add(const train::StepMetrics& metrics) {
  total_seconds_ += metrics.step_seconds;
  memory_ = cli::measured_memory(metrics);
  if (metrics.validation_loss || metrics.skipped) return;  // not a usual step
  samples_.push_back(
      {.seconds = metrics.step_seconds,
       .communication_seconds = metrics.step_seconds * metrics.communication_fraction.value_or(0),
       .peak_bytes =
           static_cast<double>(metrics.peak_device_bytes.value_or(metrics.peak_rss_bytes))});
}

bool RunRecord::is_comparable() const {
  return work_.has_value() && samples_.size() > kUncountedSteps;
}

plan::StepPrediction RunRecord::prediction_on(const plan::Cluster& cluster) const {
  plan::Workload work = *work_;
  // Medians are those of steps without an exchange.
  plan::Cluster with_rates = cluster_of_learner(cluster, learners_);
  set_offload(offload_, work, with_rates);
  return predict_step(work, with_rates, layout_);
}

std::string RunRecord::compare_with(const train::RunConfig& config,
                                    const plan::Cluster& cluster) const {
  const plan::StepPrediction predicted = prediction_on(cluster);
  write_prediction(config, {.step_seconds = predicted.step_seconds(), .memory = planned_memory_});
  return compare(predicted, summary_of(samples_));
}

std::string compare_with_prediction(const train::RunConfig& config, const RunRecord& record,
                                    comm::Communicator& group, const std::function<bool()>& stop) {
  const bool is_worth_it = !need_measuring(config) || record.total_seconds() >= kWorthMeasuring;
  const bool wants = record.is_comparable() && config.parallel.cluster != "none" && is_worth_it;
  if (comm::broadcast_string(group, wants ? "compare" : "", 0).empty()) return "";
  std::optional<RankFacts> facts =
      measure_ranks(config, group, {.seconds = kSecondsPerRate, .stop = stop});
  if (!facts || group.rank() != 0) return "";
  facts->rates.resident_bytes = record.resident_at_start();
  try {
    return record.compare_with(config, cluster_of_ranks(config, *facts, group.size()));
  } catch (const ConfigError& error) {
    return concat("no prediction: ", error.what(), "\n");
  }
}

}  // namespace trireme::cli
