#include "trireme/train/profile/time_set.h"

#include <algorithm>
#include <utility>

namespace trireme::train {

TimeSet::TimeSet(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.length_ns() == 0; });
  std::ranges::sort(spans, {}, &Span::begin_ns);
  for (const Span& span : spans) {
    if (!spans_.empty() && span.begin_ns <= spans_.back().end_ns) {
      spans_.back().end_ns = std::max(spans_.back().end_ns, span.end_ns);
    } else {
      spans_.push_back(span);
    }
  }
}

int64_t TimeSet::total_ns() const {
  int64_t total = 0;
  for (const Span& span : spans_) total += span.length_ns();
  return total;
}

TimeSet operator|(const TimeSet& a, const TimeSet& b) {
  std::vector<Span> spans = a.spans_;
  spans.insert(spans.end(), b.spans_.begin(), b.spans_.end());
  return TimeSet(std::move(spans));
}

TimeSet operator&(const TimeSet& a, const TimeSet& b) {
  TimeSet both;
  auto left = a.spans_.begin();
  auto right = b.spans_.begin();
  while (left != a.spans_.end() && right != b.spans_.end()) {
    const Span common{std::max(left->begin_ns, right->begin_ns),
                      std::min(left->end_ns, right->end_ns)};
    if (common.length_ns() > 0) both.spans_.push_back(common);
    // The span that ends first meets nothing else.
    if (left->end_ns < right->end_ns) {
      ++left;
    } else {
      ++right;
    }
  }
  return both;
}

TimeSet operator-(const TimeSet& a, const TimeSet& b) {
  TimeSet rest;
  auto hole = b.spans_.begin();
  for (Span span : a.spans_) {
    while (hole != b.spans_.end() && hole->end_ns <= span.begin_ns) ++hole;
    // A hole may reach into the next span, so it is looked at again there.
    for (auto next = hole; next != b.spans_.end() && next->begin_ns < span.end_ns; ++next) {
      if (next->begin_ns > span.begin_ns) {
        rest.spans_.push_back({span.begin_ns, next->begin_ns});
      }
      span.begin_ns = next->end_ns;
    }
    if (span.length_ns() > 0) rest.spans_.push_back(span);
  }
  return rest;
}

}  // namespace trireme::train
