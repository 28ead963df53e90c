// The schedules that run a backward as one piece. Each returns compute actions alone;
// make_schedule() adds the sends and recvs. Backwards of a stage come in ascending order of
// microbatches, so that sums over microbatches have the same bits under every schedule.
#pragma once

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// All forwards, then all backwards. Holds every microbatch's activations.
// Source: Huang et al. 2019, arXiv:1811.06965, section 2.3
Schedule gpipe(int num_ranks, int num_microbatches);

// One forward, one backward. Rank r holds at most num_ranks - r microbatches.
// Source: Narayanan et al. 2021, arXiv:2006.09503 (PipeDream-Flush), section 3
Schedule one_forward_one_backward(int num_ranks, int num_microbatches);

// 1F1B over num_chunks stages a rank: the bubble shrinks by num_chunks, transfers grow by it.
// Microbatches go round in groups of num_ranks or a little more (of fewer when there are fewer), so
// that any number of them works; the formula holds for multiples of num_ranks.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2
Schedule interleaved(int num_ranks, int num_chunks, int num_microbatches);

// GPipe over num_chunks stages a rank: all microbatches through one stage before the next, so that
// each stage's weights are used in one piece and its gradients are complete early.
// Source: Lamy-Poirier 2022, arXiv:2211.05953, section 4
Schedule breadth_first(int num_ranks, int num_chunks, int num_microbatches);

}  // namespace trireme::parallel
