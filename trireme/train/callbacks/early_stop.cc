#include "trireme/train/callbacks/early_stop.h"

#include "trireme/base/error.h"
#include "trireme/train/callbacks/callback_state.h"

namespace trireme::train::inline internal {

void EarlyStop::check(const RunConfig& /*config*/, std::span<const std::string> metrics) const {
  check_watched("early_stop.metric", config_.metric, metrics);
}

void EarlyStop::on_evaluate(RunView& run) {
  const auto value = find_metric(run.metrics(), config_.metric);
  if (!value) return;
  num_worse_ = best_.improve(*value, config_.goal, config_.minimum_change) ? 0 : num_worse_ + 1;
  stop_if_due(run);
}

void EarlyStop::stop_if_due(RunView& run) const {
  if (num_worse_ < config_.patience) return;
  run.stop(concat(config_.metric, " has not improved in ", num_worse_, " evaluations; its best is ",
                  best_.value()),
           /*for_good=*/true);
}

std::string EarlyStop::state() const {
  return write_state({{"best", best_.value()}, {"num_worse", static_cast<double>(num_worse_)}});
}

void EarlyStop::restore(const std::string& state) {
  const StateNumbers numbers = read_state(state, "early_stop", {"best", "num_worse"});
  best_.restore(numbers.at("best"));
  num_worse_ = count_in(numbers, "num_worse", "early_stop");
}

}  // namespace trireme::train::inline internal
