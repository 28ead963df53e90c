// Schedules with split backwards: the input part's result goes to the stage before at once, and the
// weight part fills gaps. As in builders.h they return compute actions only, each kind in ascending
// order.
#pragma once

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel::inline internal {

// One stage per rank. A rank first runs the forwards that fit before the first backward arrives,
// within options.memory_limit; then forwards and input parts in turn. Weight parts run in gaps, or
// when memory requires it. Returns the best of a small grid for options.costs. A limit of num_ranks
// gives ZB-1p, never worse than ZB-H1; 2 * num_ranks gives ZB-2p.
// Throws: ConfigError when memory_limit is below num_ranks
// Source: Qi et al. 2023, arXiv:2401.10241, sections 2 and 4
Schedule zero_bubble(const ScheduleOptions& options);

// Two stages per rank in a V: rank r holds stages r and 2p - 1 - r, so the loss is computed where
// the input enters. Memory is that of 1F1B, the same on every rank. There is no bubble if forward,
// input and weight part take the same time and there are at least 2p microbatches.
// Throws: ConfigError when memory_limit is below num_ranks
// Source: Qi et al. 2023, arXiv:2401.10241, section 6
Schedule zero_bubble_v(const ScheduleOptions& options);

}  // namespace trireme::parallel::inline internal
