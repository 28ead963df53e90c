#include "trireme/parallel/expert/row_exchange.h"

#include <algorithm>
#include <mutex>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kExperts = 5, kWidth = 3;

// Rows of every rank for every expert: [rank][expert].
std::vector<std::vector<int64_t>> random_counts(Draw& draw, int world) {
  std::vector<std::vector<int64_t>> counts(static_cast<size_t>(world));
  for (auto& of_rank : counts) {
    for (int64_t e = 0; e < kExperts; ++e) of_rank.push_back(draw.below<int64_t>(4));
  }
  if (draw.below(3) == 0) std::ranges::fill(counts[0], 0);
  for (auto& of_rank : counts) {
    if (draw.below(3) == 0) of_rank[1] = 0;
  }
  return counts;
}

// A row names its rank, expert and number.
at::Tensor rows_of(int rank, const std::vector<int64_t>& counts) {
  std::vector<double> values;
  for (size_t e = 0; e < counts.size(); ++e) {
    for (int64_t i = 0; i < counts[e]; ++i) {
      values.insert(values.end(),
                    {static_cast<double>(rank), static_cast<double>(e), static_cast<double>(i)});
    }
  }
  return at::tensor(values, at::kDouble).view({-1, kWidth});
}

// At once, or in two parts.
at::Tensor to_experts(const RowExchange& exchange, const at::Tensor& rows, bool in_parts) {
  return in_parts ? exchange.finish_to_experts(exchange.start_to_experts(rows))
                  : exchange.to_experts(rows);
}

TEST(RowExchange, BringsEachExpertItsRowsInTheOrderOfRanksAndBack) {
  Draw draw(1);
  for (const int world : {1, 2, 3, 4, 5}) {
    for (int round = 0; round < 8; ++round) {
      const auto counts = random_counts(draw, world);
      run_ranks(world, [&](comm::Communicator& group) {
        const ExpertAxis axis{.group = &group};
        const auto& mine = counts[static_cast<size_t>(group.rank())];
        const RowExchange exchange(mine, axis);
        std::vector<double> expected;
        const mesh::Range own = axis.experts_of(kExperts, group.rank());
        for (int64_t e = own.offset; e < own.offset + own.size; ++e) {
          int64_t of_expert = 0;
          for (int rank = 0; rank < world; ++rank) {
            const int64_t count = counts[static_cast<size_t>(rank)][static_cast<size_t>(e)];
            of_expert += count;
            for (int64_t i = 0; i < count; ++i) {
              expected.insert(expected.end(), {static_cast<double>(rank), static_cast<double>(e),
                                               static_cast<double>(i)});
            }
          }
          EXPECT_EQ(exchange.counts()[static_cast<size_t>(e - own.offset)], of_expert);
        }
        const at::Tensor rows = rows_of(group.rank(), mine).requires_grad_();
        const at::Tensor there = to_experts(exchange, rows, round % 2 == 0);
        assert_same_bits(there.detach(), at::tensor(expected, at::kDouble).view({-1, kWidth}),
                         "rows of my experts");
        // Each expert multiplies by its number: the gradient comes back to where the row was.
        const at::Tensor factor = there.detach().narrow(1, 1, 1) + 1;
        const at::Tensor back = exchange.from_experts(there * factor);
        const at::Tensor own_factor = rows.detach().narrow(1, 1, 1) + 1;
        assert_same_bits(back.detach(), rows.detach() * own_factor, "rows back");
        const at::Tensor seed = values(rows.sizes(), 0.7);
        const at::Tensor grad = torch::autograd::grad({(back * seed).sum()}, {rows})[0];
        assert_same_bits(grad, seed * own_factor, "gradient");
      });
    }
  }
}

// What is computed while rows travel also runs in backward while their gradients do: between the
// start of one and the end of the other.
TEST(RowExchange, BackwardComputesWhileGradientsTravel) {
  run_ranks(2, [&](comm::Communicator& group) {
    std::vector<std::string> order;
    std::mutex mutex;
    const RowExchange exchange(std::vector<int64_t>(kExperts, 2), {.group = &group});
    const at::Tensor x = values({2 * kExperts, kWidth}, 0.3).requires_grad_();
    const auto tell = [&](const at::Tensor& y, const char* name) {
      y.register_hook([&order, &mutex, name](const at::Tensor& grad) {
        const std::lock_guard lock(mutex);
        order.emplace_back(name);
        return grad;
      });
      return y;
    };
    const at::Tensor rows = tell(x * 2, "rows");
    const RowExchange::Arriving arriving = exchange.start_to_experts(rows);
    const at::Tensor meanwhile = tell(tell(x * 3, "meanwhile") + 1, "after it");
    const at::Tensor there = tell(exchange.finish_to_experts(arriving), "there");
    (exchange.from_experts(there) + meanwhile).sum().backward();
    EXPECT_EQ(order.back(), "rows");
    EXPECT_LT(std::ranges::find(order, "there"), std::ranges::find(order, "meanwhile"));
    assert_close(x.grad(), at::full(x.sizes(), 5, at::kDouble), 0, 0, "gradient");
  });
}

TEST(RowExchange, SendsTheBytesItStates) {
  Draw draw(2);
  const auto counts = random_counts(draw, 3);
  run_ranks(3, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    const ExpertAxis axis{.group = &counting};
    const auto& mine = counts[static_cast<size_t>(group.rank())];
    const RowExchange exchange(mine, axis);
    auto take_bytes = [&, before = counting.sent_by_all_to_all()]() mutable {
      const int64_t now = counting.sent_by_all_to_all();
      return now - std::exchange(before, now);
    };
    const mesh::Range own = axis.experts_of(kExperts, group.rank());
    int64_t away = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      const bool is_own = e >= own.offset && e < own.offset + own.size;
      if (!is_own) away += mine[static_cast<size_t>(e)];
    }
    const at::Tensor rows = rows_of(group.rank(), mine).requires_grad_();
    for (const bool in_parts : {false, true}) {
      const at::Tensor there = to_experts(exchange, rows, in_parts);
      EXPECT_EQ(take_bytes(), away * kWidth * 8);
      // The gradient of the rows that came goes back.
      const int64_t came = there.size(0) - (rows.size(0) - away);
      torch::autograd::grad({there.sum()}, {rows});
      EXPECT_EQ(take_bytes(), came * kWidth * 8);
    }
  });
}

}  // namespace
}  // namespace trireme::parallel
