#include "trireme/plan/cost/state_bytes.h"

#include <algorithm>
#include <bit>

namespace trireme::plan {

int64_t held_gradients(int64_t num_microbatches, bool in_a_tree) {
  if (num_microbatches == 1) return 0;
  return in_a_tree ? std::bit_width(static_cast<uint64_t>(num_microbatches)) : 1;
}

double state_bytes_per_parameter(const NumberSizes& sizes, int64_t zero, int64_t ranks) {
  const double states =
      sizes.states_on_disk ? 0 : sizes.wide * (sizes.states + (sizes.has_masters ? 1 : 0));
  const double parts = zero == 0 ? 1 : static_cast<double>(ranks);
  const double gradients = std::max(zero >= 2 ? sizes.gradient / parts : sizes.gradient,
                                    sizes.gradient * static_cast<double>(sizes.held_gradients));
  return (zero >= 3 ? sizes.weight / parts : sizes.weight) + gradients + states / parts;
}

}  // namespace trireme::plan
