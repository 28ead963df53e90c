#include "trireme/train/callbacks/callback.h"

#include "trireme/base/error.h"
#include "trireme/train/callbacks/activation_record.h"
#include "trireme/train/callbacks/event_commands.h"
#include "trireme/train/callbacks/gradient_record.h"
#include "trireme/train/callbacks/histograms.h"
#include "trireme/train/callbacks/step_examination.h"
#include "trireme/train/callbacks/time_limit.h"
#include "trireme/train/callbacks/watched_metric.h"
#include "trireme/train/callbacks/weight_average.h"

namespace trireme::train {
namespace {

template <typename Type>
std::unique_ptr<Callback> make() {
  return std::make_unique<Type>();
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
                                              {"activations", make<ActivationRecord>},
                                              {"record", make<GradientRecord>},
                                              {"examine", make<StepExamination>},
                                              {"command", make<EventCommands>}};
  return kBuiltIn;
}

std::string callback_tensor(std::string_view callback, std::string_view tensor) {
  return concat(kCallbackPrefix, callback, ".", tensor);
}

}  // namespace trireme::train
