#include "trireme/train/step_reports.h"

#include "trireme/base/error.h"

namespace trireme::train {

void StepReports::report(const StepMetrics& metrics, MetricsWriter& writer,
                         std::initializer_list<std::optional<std::string>> findings) {
  if (!writer.write(metrics)) {
    observer_.on_finding(concat(
        kMetricsName, " was removed or replaced; the file now at its place continues from step ",
        metrics.step));
  }
  observer_.on_step(metrics);
  for (const std::string& name : undefined_metrics(metrics)) {
    if (!undefined_.insert(name).second) continue;
    observer_.on_finding(
        concat(name, " is undefined in step ", metrics.step, ": null in ", kMetricsName));
  }
  for (const auto& finding : findings) {
    if (finding) observer_.on_finding(*finding);
  }
}

}  // namespace trireme::train
