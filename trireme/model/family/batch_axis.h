// The ranks that read different data, as layers see them whose result depends on all samples of a
// forward.
#pragma once

#include <chrono>
#include <memory>

#include "trireme/comm/communicator.h"

namespace trireme::model {

// Small and freely copied. The layers must not outlive what it points to.
struct BatchAxis {
  comm::Communicator* group = nullptr;  // null: only this rank
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
};

}  // namespace trireme::model
