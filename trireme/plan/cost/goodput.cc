#include "trireme/plan/cost/goodput.h"

#include <cmath>
#include <initializer_list>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

void check_not_negative(double value, const char* what) {
  TRIREME_CHECK(std::isfinite(value) && value >= 0, what, " is ", value,
                "; expected a finite number of at least 0");
}

void check_failures(const FailureModel& model) {
  TRIREME_CHECK(model.num_devices > 0, "the number of devices is ", model.num_devices,
                "; expected at least 1");
  check_not_negative(model.device_mtbf_seconds, "the mean time between failures of a device");
  check_not_negative(model.save_seconds, "the time of a save");
  check_not_negative(model.recovery_seconds, "the time of a recovery");
  TRIREME_CHECK(model.device_mtbf_seconds > 0,
                "the mean time between failures of a device is 0; expected more");
}

}  // namespace

double goodput_of(const FailureModel& model) {
  check_failures(model);
  check_not_negative(model.interval_seconds, "the interval between checkpoints");
  TRIREME_CHECK(model.interval_seconds > 0, "the interval between checkpoints is 0; expected more");
  const double mtbf = model.mtbf_seconds();
  // An infinite exponential means that no interval is ever finished: 0.
  return model.interval_seconds /
         (mtbf * std::exp(model.recovery_seconds / mtbf) *
          // expm1: with failures far apart the exponent is tiny, and exp(x) - 1 would lose all
          // digits.
          std::expm1((model.interval_seconds + model.save_seconds) / mtbf));
}

double best_interval_seconds(const FailureModel& model) {
  check_failures(model);
  const double mtbf = model.mtbf_seconds(), save = model.save_seconds;
  // Daly's series holds only below this; above it he takes the mean time itself.
  if (save >= 2 * mtbf) return mtbf;
  const double ratio = save / (2 * mtbf);
  return std::sqrt(2 * save * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save;
}

}  // namespace trireme::plan
