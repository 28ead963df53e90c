#include "trireme/train/parallel/teacher_routes.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/train/parallel/teacher_routes_of.h"

namespace trireme::train {
namespace {

TEST(TeacherRoutes, DataRanksShareCopiesOrCopiesTakeTurns) {
  const TeacherRoutes shared = routes_of(/*num_data=*/4, /*readers=*/2, /*num_copies=*/2);
  EXPECT_EQ(shared.num_data(), 4);
  EXPECT_EQ(shared.readers_of(1), (std::vector<int>{2, 3}));
  const int first = shared.first_teacher;
  for (const int64_t number : {0, 1, 7}) {
    EXPECT_EQ(shared.teacher_of(0, number), first);
    EXPECT_EQ(shared.teacher_of(1, number), first);
    EXPECT_EQ(shared.teacher_of(2, number), first + 1);
    EXPECT_EQ(shared.teacher_of(3, number), first + 1);
  }
  EXPECT_EQ(shared.teachers_of(3), std::vector<int>{first + 1});
  const TeacherRoutes in_turn = routes_of(2, 1, 4, /*ranks_per_copy=*/2);
  EXPECT_EQ(in_turn.teacher_of(0, 0), 2);
  EXPECT_EQ(in_turn.teacher_of(0, 1), 4);
  EXPECT_EQ(in_turn.teacher_of(0, 2), 2);
  EXPECT_EQ(in_turn.teacher_of(1, 0), 6);
  EXPECT_EQ(in_turn.teachers_of(1), (std::vector<int>{6, 8}));
}

}  // namespace
}  // namespace trireme::train
