#include "trireme/cli/train/automatic_layout.h"

#include <chrono>
#include <filesystem>
#include <sstream>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/seconds.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/comm/objects.h"

namespace trireme::cli::inline internal {
namespace {

constexpr double kSecondsToMeasure = 0.05;
constexpr const char* kRefused = "refused";

struct Choice {
  plan::Workload work{};
  std::string line{};
};

plan::SearchResult search_for(const train::RunConfig& config, const plan::Cluster& cluster,
                              int num_ranks) {
  plan::SearchResult found = search_layouts(config, cluster, {.num_best = 1});
  TRIREME_CHECK(!found.best.empty(), "parallel.auto: ", describe_failure(found, cluster));
  TRIREME_CHECK(found.best.front().work.axes.num_ranks() == num_ranks,
                "parallel.auto finds a layout of at most ",
                found.best.front().work.axes.num_ranks(), " of the ", num_ranks,
                " ranks for train.global_batch = ", config.train.global_batch,
                "; start so many, or choose another batch");
  return found;
}

// Of the run that has begun in output.folder. Nothing when there is none, or this run cannot have
// its layout.
std::optional<plan::Workload> begun_layout(const train::RunConfig& config, int num_ranks) {
  const std::filesystem::path path =
      std::filesystem::path(config.output.folder) / train::kConfigName;
  try {
    const train::RunConfig begun =
        train::parse_saved_config(read_file(path), path.string(), config);
    train::RunConfig merged = config;
    merged.parallel = begun.parallel;
    merged.train.micro_batch = begun.train.micro_batch;
    merged.train.recompute = begun.train.recompute;
    return resolve_on(merged, num_ranks);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Choice choose(const train::RunConfig& config, const RankFacts& facts, int num_ranks) {
  if (const auto begun = begun_layout(config, num_ranks)) {
    return {*begun, concat("plan    the layout with which the run has begun: ", describe(*begun))};
  }
  const auto start = std::chrono::steady_clock::now();
  const plan::SearchResult found =
      search_for(config, cluster_of_ranks(config, facts, num_ranks), num_ranks);
  const plan::Plan& best = found.best.front();
  return {best.work, concat("plan    ", describe(best.work), ": predicted ",
                            format("%.3f s a step, ", best.step.step_seconds()),
                            human_bytes(best.step.memory.total()), " per rank; the best of ",
                            found.num_candidates,
                            format(" layouts, searched in %.2f s", seconds_since(start)))};
}

// Lines: what the user reads, then key=value.
std::string to_text(const Choice& choice) {
  std::string text = choice.line;
  for (const auto& [key, value] : settings_of(choice.work)) text += concat("\n", key, "=", value);
  return text;
}

}  // namespace

AutomaticLayout choose_layout(const train::RunConfig& given, comm::Communicator& group) {
  train::RunConfig config = given;
  const RankFacts facts = measure_ranks(config, group, kSecondsToMeasure);
  std::string text;
  if (group.rank() == 0) {
    try {
      config.task->open(/*evaluates=*/false);
      text = to_text(choose(config, facts, group.size()));
    } catch (const Error& error) {
      text = concat(kRefused, "\n", error.what());
    }
  }
  std::istringstream lines(comm::broadcast_string(group, text, 0));
  AutomaticLayout layout{.config = config};
  std::getline(lines, layout.line);
  std::vector<train::Override> chosen;
  for (std::string line; std::getline(lines, line);) {
    if (layout.line == kRefused) throw ConfigError(line);
    const size_t equals = line.find('=');
    chosen.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  layout.config = with_layout(given, chosen);
  return layout;
}

train::RunConfig with_any_layout(const train::RunConfig& given, int num_ranks) {
  if (!given.parallel.automatic) return given;
  train::RunConfig config = given;
  config.task->open(/*evaluates=*/false);
  const plan::SearchResult found =
      search_for(config, assumed_cluster(config, num_ranks), num_ranks);
  return with_layout(given, settings_of(found.best.front().work));
}

}  // namespace trireme::cli::inline internal
