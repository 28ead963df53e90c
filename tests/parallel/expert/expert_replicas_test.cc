#include "trireme/parallel/expert/expert_replicas.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "trireme/parallel/expert/expert_order.h"
#include "trireme/parallel/expert/row_exchange.h"

namespace trireme::parallel {
namespace {

using namespace harness;
using Experts = std::vector<int64_t>;

TEST(ExpertReplicas, TheBusiestExpertsAreThoseWithMostTokens) {
  EXPECT_EQ(busiest_experts(std::array<double, 5>{3, 9, 4, 9, 1}, 3), (Experts{1, 2, 3}));
  EXPECT_EQ(busiest_experts(std::array<double, 3>{7, 7, 7}, 2), (Experts{0, 1}));
  EXPECT_EQ(busiest_experts(std::array<double, 3>{1, 2, 3}, 0), Experts{});
  EXPECT_EQ(busiest_experts(std::array<double, 2>{1, 2}, 5), (Experts{0, 1}));
}

TEST(ExpertReplicas, ARankComputesTheCopiesForItsOwnTokens) {
  run_ranks(2, [](comm::Communicator& group) {
    // Experts 0 to 2 and 3 to 4. Each rank's numbers: two copies, then its own.
    const ExpertReplicas replicas({1, 4}, 5, {.group = &group});
    EXPECT_EQ(replicas.first(), (Experts{0, 5, 9}));
    const at::Tensor experts = at::tensor(Experts{0, 1, 2, 3, 4, -1}, at::kLong).view({3, 2});
    const Experts expected = group.rank() == 0 ? Experts{2, 0, 4, 7, 1, -1}  //
                                               : Experts{2, 5, 4, 7, 6, -1};
    assert_same_bits(replicas.renumber(experts), at::tensor(expected, at::kLong).view({3, 2}),
                     "numbers");
  });
}

class ReplicasOfStacks : public testing::TestWithParam<int> {};

TEST_P(ReplicasOfStacks, AreTheOwnersWeightsAndGiveItTheirGradients) {
  constexpr int64_t kExperts = 7;
  const int world = GetParam();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const Experts& copied : {Experts{}, {0}, {2, 3}, {0, 1, 2, 3, 4, 5, 6}}) {
      run_ranks(world, [&](comm::Communicator& inner) {
        CountingCommunicator group(inner);
        const ExpertAxis axis{.group = &group};
        const mesh::Range own = axis.experts_of(kExperts, group.rank());
        const at::Tensor whole = values({kExperts, 4, 3}, 0.37, 1, dtype);
        const ExpertReplicas replicas(copied, kExperts, axis);
        const at::Tensor index = at::tensor(copied, at::kLong);
        assert_same_bits(replicas.copies_of(whole.narrow(0, own.offset, own.size)),
                         whole.index_select(0, index), "copies");

        const at::Tensor stack = at::full({own.size, 4, 3}, -5, dtype);
        const auto of_rank = [&](int rank) { return values({kExperts, 4, 3}, 1 + rank, 1, dtype); };
        const int64_t before = group.sent_by_all_to_all();
        replicas.sum_gradients(of_rank(group.rank()).index_select(0, index), stack);
        at::Tensor sum = of_rank(0).to(at::promote_types(dtype, at::kFloat));
        for (int rank = 1; rank < world; ++rank) sum += of_rank(rank);
        int64_t num_sent = 0;
        for (const int64_t e : copied) {
          if (e < own.offset || e >= own.offset + own.size) {
            ++num_sent;
            continue;
          }
          assert_same_bits(stack[e - own.offset], sum[e].to(dtype), "gradient");
        }
        const int64_t num_written = std::ssize(copied) - num_sent;
        EXPECT_EQ(stack.eq(-5).sum().item<int64_t>(), (own.size - num_written) * 12);
        if (world > 1) {
          EXPECT_EQ(group.sent_by_all_to_all() - before, num_sent * 12 * stack.element_size());
        }
      });
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, ReplicasOfStacks, testing::Values(1, 2, 3, 4));

// All tokens want expert 0, of which there are copies: nothing but the counts travels.
TEST(ExpertReplicas, TokensOfCopiesStayAtHome) {
  run_ranks(3, [](comm::Communicator& inner) {
    CountingCommunicator group(inner);
    const ExpertAxis axis{.group = &group};
    const ExpertReplicas replicas({0}, 6, axis);
    const at::Tensor experts = replicas.renumber(at::zeros({5, 1}, at::kLong));
    RowExchange exchange(order_by_expert(experts, replicas.first().back()), axis, replicas.first());
    const at::Tensor x = values({5, 4}, 0.3);
    const at::Tensor rows = exchange.to_experts(x);
    assert_same_bits(rows, x, "own rows");
    EXPECT_EQ(exchange.rows().of_experts(), (Experts{5, 0, 0}));
    EXPECT_EQ(group.sent_by_all_to_all(), 2 * 8 * (3 + 1));
    assert_same_bits(exchange.to_tokens(rows, at::ones({5, 1}, at::kDouble)), x, "results");
    EXPECT_EQ(group.sent_by_all_to_all(), 2 * 8 * (3 + 1));
  });
}

}  // namespace
}  // namespace trireme::parallel
