// The schedules by name. They return compute actions only; make_schedule() adds sends and recvs.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Schedules that run a backward as one piece. A stage's backwards are in ascending order of
// microbatches, so sums over microbatches have the same bits under every schedule.

// All forwards, then all backwards. Holds every microbatch's activations.
// Source: Huang et al. 2019, arXiv:1811.06965, section 2.3
Schedule gpipe(int num_ranks, int num_microbatches);

// One forward, one backward in turn. Rank r holds at most num_ranks - r microbatches.
// Source: Narayanan et al. 2021, arXiv:2006.09503 (PipeDream-Flush), section 3
Schedule one_forward_one_backward(int num_ranks, int num_microbatches);

// 1F1B with num_chunks stages per rank: the bubble shrinks by num_chunks, and transfers grow by it.
// Microbatches go round in groups of num_ranks or a little more (or of all, if there are fewer), so
// any number of them works. The formula holds for multiples of num_ranks.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2
Schedule interleaved(int num_ranks, int num_chunks, int num_microbatches);

// GPipe with num_chunks stages per rank: all microbatches pass one stage before the next. Each
// stage's weights are then used in one go, and its gradients are complete early.
// Source: Lamy-Poirier 2022, arXiv:2211.05953, section 4
Schedule breadth_first(int num_ranks, int num_chunks, int num_microbatches);

// Schedules with split backwards: the input part's result goes to the stage before at once, and the
// weight part fills gaps. Each kind of action is in ascending
// order.

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

// Places the weight parts of split backwards into the gaps of an order of forwards and input parts.

// The amount by which an action changes the activations that its rank holds. 1 is one microbatch on
// one stage.
double activation_change(const Action& action, double kept_for_weight);

// Fills each of `orders` with weight parts in several ways and returns the cheapest by
// options.costs. Weight parts go into gaps that are long enough or nearly so, and to places where
// memory_limit leaves no room for a forward. The rest go to the end. `orders` contain only forwards
// and input parts.
// Throws: ConfigError when no order fits within memory_limit
// Source: Qi et al. 2023, arXiv:2401.10241, section 4
Schedule fill_weight_parts(const std::vector<Schedule>& orders, const ScheduleOptions& options);

}  // namespace trireme::parallel
