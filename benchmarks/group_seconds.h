// How long a group takes for something that its ranks do together.
#pragma once

#include <chrono>
#include <functional>

#include <ATen/ATen.h>

#include "trireme/base/clock.h"
#include "trireme/comm/communicator.h"

namespace trireme::benchmarks {

// Of the slowest rank. All begin at the same time.
// Collective: every rank of `group`
inline double seconds_of(const std::function<void()>& function, comm::Communicator& group) {
  group.barrier()->wait();
  const auto start = std::chrono::steady_clock::now();
  function();
  const at::Tensor slowest = at::full({1}, seconds_since(start), at::kDouble);
  group.all_reduce(slowest, {.operation = comm::ReduceOp::kMax})->wait();
  return slowest.item<double>();
}

}  // namespace trireme::benchmarks
