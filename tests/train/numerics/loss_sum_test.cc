#include "trireme/train/numerics/loss_sum.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train {
namespace {

TEST(LossSum, GatherIsInRankOrder) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    const double rank = world.rank();
    EXPECT_EQ(gather(world, {rank, -rank}), (std::vector<double>{0, 0, 1, -1, 2, -2}));
  });
}

// Losses of two microbatches; each bit of the sum stands for who it came from.
TEST(LossSum, CountsEachTokenOnce) {
  harness::run_ranks(16, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world,
                                {{"pipeline", 2}, {"data", 2}, {"context", 2}, {"tensor", 2}});
    const int data = mesh.coordinate("data"), context = mesh.coordinate("context");
    // Tensor ranks have the same loss, the other stage has none, context ranks other tokens.
    const bool has_loss = mesh.coordinate("pipeline") == 1;
    const double mine = has_loss ? std::pow(2.0, 2 * data + context) : 0.0;
    EXPECT_EQ(sum_over_batches(mesh, 1, {mine, 16 * mine}), 15.0 + 16 * 15.0);
    EXPECT_EQ(sum_over_batches(mesh, 0, {mine, 16 * mine}), 0.0);
  });
}

TEST(LossSum, SumsSeveralNumbersOfAMicrobatchApart) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}});
    const double r = world.rank();
    EXPECT_EQ(sums_over_batches(mesh, 0, {1 + r, 10, 3, 40 + r, 5, 60}, 2),
              (std::vector<double>{2 * 9 + 1, 2 * 110 + 1}));
  });
}

TEST(LossSum, DoesNotDependOnWhoHadWhichMicrobatch) {
  const std::vector<double> losses = {0.1, 0.7, 1e-9, 3.3, 2.2, 1e9, 0.3, 0.9};
  std::vector<double> sums;
  for (const int ranks : {1, 2, 4, 8}) {
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, {{"data", ranks}});
      const auto each = losses.size() / static_cast<size_t>(ranks);
      const auto first = losses.begin() + static_cast<int64_t>(each) * world.rank();
      const double sum = sum_over_batches(mesh, 0, {first, first + static_cast<int64_t>(each)});
      if (world.rank() == 0) sums.push_back(sum);
    });
  }
  for (const double sum : sums) EXPECT_EQ(sum, sums[0]);
}

}  // namespace
}  // namespace trireme::train
