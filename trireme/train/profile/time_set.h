// Sets of time and their arithmetic. The intersection of two sets shows how much of one hides
// behind the other.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Disjoint spans in order of time, none empty. A value: cheap to move, safe to share.
class TimeSet {
 public:
  TimeSet() = default;
  // From spans in any order, which may overlap, touch or be empty.
  explicit TimeSet(std::vector<Span> spans);

  const std::vector<Span>& spans() const { return spans_; }
  int64_t total_ns() const;

  friend TimeSet operator|(const TimeSet& a, const TimeSet& b);  // in either
  friend TimeSet operator&(const TimeSet& a, const TimeSet& b);  // in both
  friend TimeSet operator-(const TimeSet& a, const TimeSet& b);  // in a but not in b
  friend bool operator==(const TimeSet&, const TimeSet&) = default;

 private:
  std::vector<Span> spans_;
};

}  // namespace trireme::train
