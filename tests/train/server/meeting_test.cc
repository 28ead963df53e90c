#include "trireme/train/server/meeting.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train {
namespace {

TEST(Meeting, AllLearnTheLeastStepAndTheStrongestReason) {
  harness::run_ranks(3, [](comm::Communicator& workers) {
    const Meeting meeting = meet(workers, 10 + workers.rank(), workers.rank() == 1 ? 2 : 0);
    EXPECT_EQ(meeting.least_step, 10);
    EXPECT_EQ(meeting.sum_of_steps, 33);
    EXPECT_EQ(meeting.num_counted, 3);
    EXPECT_EQ(meeting.leave, 2);
    const Meeting some = meet(workers, 10 + workers.rank(), 0, workers.rank() != 1);
    EXPECT_EQ(some.sum_of_steps, 22);
    EXPECT_EQ(some.num_counted, 2);
  });
}

}  // namespace
}  // namespace trireme::train
