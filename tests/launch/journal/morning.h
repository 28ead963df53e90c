// A time for tests.
#pragma once

#include <chrono>

#include "trireme/launch/journal/time_text.h"

namespace trireme::launch {

// "2026-11-25T07:00:00.000000Z"
inline const WallTime kMorning =
    std::chrono::sys_days(std::chrono::year(2026) / 11 / 25) + std::chrono::hours(7);

}  // namespace trireme::launch
