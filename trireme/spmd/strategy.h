// Chooses how an operator's tensors are split on each axis, with the fewest bytes moved.
#pragma once

#include <vector>

#include "trireme/spmd/form.h"
#include "trireme/spmd/place.h"

namespace trireme::spmd {

// A tensor argument as the choice sees it: the same on every rank.
struct Argument {
  c10::IntArrayRef sizes{};  // of the whole
  const Places* places = nullptr;
  double bytes = 0;  // of the whole
};

struct Strategy {
  c10::SmallVector<Places, 4> inputs{};
  c10::SmallVector<Places, 3> outputs{};
};

// fixed: an argument that the operator writes, whose places stay; -1: none
// all_fixed: no argument's places change
// Returns false when there is none that leaves them as they are.
bool choose(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
            Strategy& strategy, bool all_fixed = false);

// The length of a factor: of a dimension that has it, times its scale; -1: no argument has it.
int64_t length_of(const Form& form, c10::ArrayRef<Argument> arguments, Factor factor);

}  // namespace trireme::spmd
