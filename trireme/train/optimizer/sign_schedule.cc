#include "trireme/train/optimizer/sign_schedule.h"

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr Choice<SignsOf> kSigns[] = {{"onebit-adam", SignsOf::kMomentum},
                                      {"onebit-lamb", SignsOf::kMomentum},
                                      {"zero-one-adam", SignsOf::kGradient}};

}  // namespace

SignsOf signs_of(const OptimizerConfig& config) {
  for (const auto& [name, signs] : kSigns) {
    if (config.name == name) return signs;
  }
  return SignsOf::kNothing;
}

bool is_plain_update(const OptimizerConfig& config, int64_t update) {
  switch (signs_of(config)) {
    case SignsOf::kNothing: return true;
    case SignsOf::kMomentum: return update <= config.freeze_step;
    case SignsOf::kGradient: return variance_update(update, config.variance_updates).is_due;
  }
  throw InternalError("unknown SignsOf");
}

bool gets_momentum(const OptimizerConfig& config, int64_t update) {
  return signs_of(config) == SignsOf::kMomentum && !is_plain_update(config, update);
}

VarianceUpdate variance_update(int64_t update, int64_t count) {
  // The intervals of one length take count * length updates.
  int64_t begin = 0, length = 1, before = 0;
  while (update - 1 - begin >= count * length) {
    begin += count * length;
    before += count;
    length *= 2;
  }
  const int64_t inside = update - 1 - begin;
  return {.is_due = inside % length == 0, .number = before + inside / length + 1};
}

}  // namespace trireme::train
