#include "trireme/dataset/recommend/csv_form.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::dataset {
float CsvNumber::dense(double x) const {
  switch (transform) {
    case NumberTransform::kNone: return static_cast<float>(x);
    case NumberTransform::kLog: return static_cast<float>(std::log1p(std::max(x, 0.0)));
    case NumberTransform::kStandard: return static_cast<float>((x - mean) / deviation);
  }
  throw InternalError("a transform without a rule");
}

void NumberMoments::add(double x) {
  ++count_;
  const double distance = x - mean_;
  mean_ += distance / static_cast<double>(count_);
  squares_ += distance * (x - mean_);
}

double NumberMoments::deviation() const {
  if (count_ == 0) return 1;
  const double deviation = std::sqrt(squares_ / static_cast<double>(count_));
  return deviation >= std::numeric_limits<double>::min() ? deviation : 1;
}

}  // namespace trireme::dataset
