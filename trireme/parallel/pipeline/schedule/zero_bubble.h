// Schedules whose backward is split: the input part goes at once to the stage before, the weight
// part fills gaps. As builders.h: compute actions alone, each part in ascending order.
#pragma once

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// One stage a rank. Forwards and input parts in turn after as many forwards as fit before the first
// backward arrives, within options.memory_limit; weight parts where there is a gap, or where memory
// asks for one. The best of a small grid for options.costs. A limit of num_ranks gives ZB-1p, never
// worse than ZB-H1; of 2 * num_ranks ZB-2p.
// Throws: ConfigError when memory_limit is below num_ranks
// Source: Qi et al. 2023, arXiv:2401.10241, sections 2 and 4
Schedule zero_bubble(const ScheduleOptions& options);

// Two stages a rank in the shape of a V: rank r holds stages r and 2p - 1 - r, so that the loss is
// computed where the input enters. Memory is that of 1F1B, and the same on every rank; without a
// bubble where forward, input and weight part take the same time and there are at least 2p
// microbatches.
// Throws: ConfigError when memory_limit is below num_ranks
// Source: Qi et al. 2023, arXiv:2401.10241, section 6
Schedule zero_bubble_v(const ScheduleOptions& options);

}  // namespace trireme::parallel
