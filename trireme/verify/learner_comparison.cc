#include "trireme/verify/learner_comparison.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/verify/learner_tensors.h"

namespace trireme::verify {
namespace {

template <typename Type>
void move_to(std::vector<Type>& into, std::vector<Type> from, int learner) {
  for (Type& probe : from) {
    if (!is_common(probe.name)) probe.learner = learner;
  }
  std::ranges::move(from, std::back_inserter(into));
}

template <typename Type>
void sort_as_made(std::vector<Type>& probes) {
  std::ranges::stable_sort(probes, {},
                           [](const Type& probe) { return std::pair(probe.step, probe.kind); });
}

}  // namespace

Comparison joined(std::vector<Comparison> learners) {
  Comparison all;
  all.num_steps = learners.empty() ? 0 : learners.front().num_steps;
  for (size_t i = 0; i < learners.size(); ++i) {
    Comparison& one = learners[i];
    move_to(all.probes, std::move(one.probes), static_cast<int>(i));
    move_to(all.same, std::move(one.same), static_cast<int>(i));
    for (std::string& name : one.left_out) {
      if (std::ranges::find(all.left_out, name) == all.left_out.end())
        all.left_out.push_back(std::move(name));
    }
    all.is_proved = all.is_proved && one.is_proved;
    all.num_probes += one.num_probes;
    all.num_steps = std::min(all.num_steps, one.num_steps);
    all.largest_rounding = std::max(all.largest_rounding, one.largest_rounding);
  }
  sort_as_made(all.probes);
  sort_as_made(all.same);
  return all;
}

}  // namespace trireme::verify
