// How long work on a checkpoint tells how far it is.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::checkpoint {

// Called with the bytes done and the bytes in total, never by two threads at once.
using OnProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace trireme::checkpoint
