// The schedules that run a backward as one piece. They return compute actions only; make_schedule()
// adds sends and recvs. A stage's backwards are in ascending order of microbatches, so sums over
// microbatches have the same bits under every schedule.
#pragma once

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
