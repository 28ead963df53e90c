#include "trireme/watch/series/pyramid.h"

#include <algorithm>
#include <cmath>

namespace trireme::watch {

void Summary::add(double value) {
  if (!std::isfinite(value)) return;
  min = std::min(min, value);
  max = std::max(max, value);
  sum += value;
  ++count;
}

void Summary::add(const Summary& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  count += other.count;
}

double Summary::mean() const {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  // A sum of huge values may overflow, and rounding may leave the range.
  return std::clamp(sum / count, min, max);
}

void Pyramid::add(double value) {
  values_.push_back(value);
  if (values_.size() % kBase != 0) return;
  Summary summary;
  for (size_t i = values_.size() - kBase; i < values_.size(); ++i) summary.add(values_[i]);
  for (size_t level = 0;; ++level) {
    if (level == levels_.size()) levels_.emplace_back();
    std::deque<Summary>& groups = levels_[level];
    groups.push_back(summary);
    if (groups.size() % kFanout != 0) return;
    summary = {};
    for (size_t i = groups.size() - kFanout; i < groups.size(); ++i) summary.add(groups[i]);
  }
}

void Pyramid::cut(size_t num_values) {
  if (num_values >= values_.size()) return;
  values_.resize(num_values);
  size_t width = kBase;
  for (std::deque<Summary>& groups : levels_) {
    groups.resize(std::min(groups.size(), num_values / width));
    width *= kFanout;
  }
}

Summary Pyramid::summary(size_t begin, size_t end) const {
  Summary total;
  while (begin < end) {
    const std::deque<Summary>* best = nullptr;
    size_t best_width = 1;
    size_t width = kBase;
    for (const std::deque<Summary>& groups : levels_) {
      if (begin % width != 0 || begin + width > end) break;
      best = &groups;
      best_width = width;
      width *= kFanout;
    }
    if (best) {
      total.add((*best)[begin / best_width]);
    } else {
      total.add(values_[begin]);
    }
    begin += best_width;
  }
  return total;
}

}  // namespace trireme::watch
