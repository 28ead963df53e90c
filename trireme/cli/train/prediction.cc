#include "trireme/cli/train/prediction.h"

#include "trireme/base/error.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/device_rates.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/comm/objects.h"

namespace trireme::cli::inline internal {
namespace {

constexpr double kSecondsPerRate = 0.02;
constexpr double kWorthMeasuring = 20;  // seconds of training

}  // namespace

RunRecord::RunRecord() : resident_at_start_(resident_after_little()) {}

void RunRecord::begin(const train::RunConfig& config) {
  work_ = config.task->workload(config);
  if (work_) layout_ = runtime_stages(config);
}

void RunRecord::add(const train::StepMetrics& metrics) {
  total_seconds_ += metrics.step_seconds;
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

std::string RunRecord::compare_with(const plan::Cluster& cluster) const {
  return compare(predict_step(*work_, cluster, layout_), summary_of(samples_));
}

std::string compare_with_prediction(const train::RunConfig& config, const RunRecord& record,
                                    comm::Communicator& group) {
  const bool is_worth_it = !need_measuring(config) || record.total_seconds() >= kWorthMeasuring;
  const bool wants = record.is_comparable() && config.parallel.cluster != "none" && is_worth_it;
  if (comm::broadcast_string(group, wants ? "compare" : "", 0).empty()) return "";
  RankFacts facts = measure_ranks(config, group, kSecondsPerRate);
  facts.rates.resident_bytes = record.resident_at_start();
  if (group.rank() != 0) return "";
  try {
    return record.compare_with(cluster_of_ranks(config, facts, group.size()));
  } catch (const ConfigError& error) {
    return concat("no prediction: ", error.what(), "\n");
  }
}

}  // namespace trireme::cli::inline internal
