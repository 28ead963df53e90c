#include "trireme/train/numerics/batch_scaling.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::train {

double scaled_learning_rate(double rate, BatchScaling scaling, int64_t batch, int64_t base_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  switch (scaling) {
    case BatchScaling::kNone: return rate;
    case BatchScaling::kLinear: return rate * ratio;
    case BatchScaling::kSquareRoot: return rate * std::sqrt(ratio);
  }
  throw InternalError("unknown BatchScaling");
}

}  // namespace trireme::train
