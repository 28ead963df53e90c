#include "trireme/comm/rounds/patience.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "trireme/base/numbers.h"

namespace trireme::comm {
namespace {

constexpr size_t kMostKnown = 256;

}  // namespace

void Patience::add(std::chrono::milliseconds lateness) {
  known_.push_back(lateness);
  if (known_.size() > kMostKnown) known_.pop_front();
}

std::optional<std::chrono::milliseconds> Patience::limit() const {
  if (known_.size() < std::max<size_t>(options_.fewest, 1)) return std::nullopt;
  std::vector<double> values;
  for (const auto each : known_) values.push_back(static_cast<double>(each.count()));
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  const double limit = std::min(middle + options_.deviations * median(values), 1e12);
  return std::max(options_.least, std::chrono::milliseconds(static_cast<int64_t>(limit)));
}

}  // namespace trireme::comm
