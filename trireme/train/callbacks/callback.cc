#include "trireme/train/callbacks/callback.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/callbacks/best_checkpoint.h"
#include "trireme/train/callbacks/early_stop.h"
#include "trireme/train/callbacks/event_commands.h"
#include "trireme/train/callbacks/histograms.h"
#include "trireme/train/callbacks/time_limit.h"
#include "trireme/train/callbacks/weight_average.h"

namespace trireme::train {
namespace {

template <typename Type>
std::unique_ptr<Callback> make() {
  return std::make_unique<Type>();
}

std::optional<double> find_value(std::span<const MetricValue> values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &MetricValue::first);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

}  // namespace

// The average comes first, because others may watch its metric; commands come last, because they
// tell what the others decided.
CallbackTable built_in_callbacks() {
  static constexpr CallbackKind kBuiltIn[] = {{WeightAverage::kName, make<WeightAverage>},
                                              {"early_stop", make<EarlyStop>},
                                              {"best", make<BestCheckpoint>},
                                              {"time_limit", make<TimeLimit>},
                                              {"histograms", make<Histograms>},
                                              {"command", make<EventCommands>}};
  return kBuiltIn;
}

std::string callback_tensor(std::string_view callback, std::string_view tensor) {
  return concat(kCallbackPrefix, callback, ".", tensor);
}

std::optional<double> find_metric(const StepMetrics& metrics, std::string_view name) {
  constexpr std::string_view kValidation = "validation_";
  if (name == "loss") return metrics.loss;
  if (name == "grad_norm") return metrics.grad_norm;
  if (name == "validation_loss") return metrics.validation_loss;
  if (const auto value = find_value(metrics.others, name)) return value;
  if (!name.starts_with(kValidation)) return std::nullopt;
  return find_value(metrics.validation_others, name.substr(kValidation.size()));
}

}  // namespace trireme::train
