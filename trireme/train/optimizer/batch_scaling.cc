#include "trireme/train/optimizer/batch_scaling.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::train {

double peak_learning_rate(const OptimizerConfig& config, int64_t global_batch) {
  if (config.batch_scaling == "none") return config.learning_rate;
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(config.base_batch);
  if (config.batch_scaling == "linear") return config.learning_rate * ratio;
  if (config.batch_scaling == "square-root") return config.learning_rate * std::sqrt(ratio);
  throw InternalError("batch scaling " + config.batch_scaling);
}

}  // namespace trireme::train
