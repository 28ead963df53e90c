// Which mutation this process makes, in which step, and how often it has made it.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/mutations/mutation.h"

namespace trireme::mutations {

// One for each process. Written between steps, read by the threads of a step.
struct Made {
  std::atomic<const Mutation*> mutation{nullptr};  // null: none
  std::atomic<int64_t> step{0};                    // that runs; 0: none
  std::atomic<int64_t> times{0};
};

Made& made();

// The mutation, if it is this mistake and a step runs.
const Mutation* making(Mistake mistake);

}  // namespace trireme::mutations
