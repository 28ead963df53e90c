#include "trireme/parallel/pipeline/schedule/builders.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/parallel/pipeline/schedule/schedule_check.h"

namespace trireme::parallel {
namespace {

int peak(const Schedule& schedule, int rank) {
  return peak_activations(schedule)[rank].until_backward;
}

TEST(Builders, GPipeHoldsEveryMicrobatch) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(peak(gpipe(4, 9), rank), 9);
}

// Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1
TEST(Builders, OneForwardOneBackwardHoldsNoMoreThanTheStagesBehind) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 5, 8, 64}) {
      const Schedule schedule = one_forward_one_backward(p, m);
      for (int rank = 0; rank < p; ++rank) EXPECT_EQ(peak(schedule, rank), std::min(p - rank, m));
    }
  }
}

// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3: 1 + (p-1)/(pv) times 1F1B's
TEST(Builders, InterleavedHoldsMoreByTheFormula) {
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 3, 4})
      EXPECT_EQ(peak(interleaved(p, v, 4 * p), 0), p * v + p - 1) << p << ' ' << v;
  }
}

TEST(Builders, InterleavedTakesAnyNumberOfMicrobatches) {
  for (int p = 1; p <= 8; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = 1; m <= 20; ++m) {
        Schedule schedule = interleaved(p, v, m);
        check_schedule(with_transfers(schedule, schedule.edges));
      }
    }
  }
}

TEST(Builders, BreadthFirstUsesEachStageInOnePiece) {
  const Schedule schedule = breadth_first(2, 3, 4);
  const auto& actions = schedule.actions[1];
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto step = static_cast<int>(i % 12);
    const bool forward = i < 12;
    EXPECT_EQ(actions[i].kind, forward ? ActionKind::kForward : ActionKind::kBackward);
    EXPECT_EQ(actions[i].microbatch, step % 4);
    EXPECT_EQ(actions[i].stage, forward ? 1 + 2 * (step / 4) : 5 - 2 * (step / 4));
  }
}

}  // namespace
}  // namespace trireme::parallel
