#include "trireme/parallel/expert/row_exchange.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "trireme/comm/hierarchical/host_identity.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kExperts = 5, kWidth = 3;

// Each rank's choice: [S, k], some dropped, some ranks without tokens, some experts unused.
std::vector<at::Tensor> random_choices(Draw& draw, int world, int64_t k) {
  std::vector<at::Tensor> choices;
  const int64_t unused = draw.below(3) == 0 ? 1 : -1;
  for (int rank = 0; rank < world; ++rank) {
    const int64_t S = draw.below(4) == 0 ? 0 : draw.below<int64_t>(7);
    const at::Tensor experts = at::empty({S, k}, at::kLong);
    for (int64_t s = 0; s < S; ++s) {
      std::set<int64_t> taken{unused};
      for (int64_t j = 0; j < k; ++j) {
        int64_t expert = draw.below(kExperts);
        while (taken.contains(expert)) expert = draw.below(kExperts);
        taken.insert(expert);
        experts[s][j] = draw.below(6) == 0 ? -1 : expert;
      }
    }
    choices.push_back(experts);
  }
  return choices;
}

// A token names its rank and number.
at::Tensor tokens_of(int rank, int64_t S, at::ScalarType dtype = at::kDouble) {
  const at::Tensor tokens = at::zeros({S, kWidth}, dtype);
  tokens.select(1, 0).fill_(rank);
  tokens.select(1, 1).copy_(at::arange(S));
  return tokens;
}

// What the experts of `rank` must get: by expert, then by rank and token.
struct Expected {
  std::vector<int64_t> counts;
  at::Tensor rows;
  at::Tensor experts;  // [N, 1]: each row's
};
Expected expected_on(const std::vector<at::Tensor>& choices, mesh::Range own,
                     at::ScalarType dtype = at::kDouble) {
  Expected expected;
  std::vector<at::Tensor> rows{at::empty({0, kWidth}, dtype)};
  std::vector<double> experts;
  for (int64_t e = own.offset; e < own.offset + own.size; ++e) {
    expected.counts.push_back(0);
    for (size_t rank = 0; rank < choices.size(); ++rank) {
      const at::Tensor tokens = tokens_of(static_cast<int>(rank), choices[rank].size(0), dtype);
      const at::Tensor mine = choices[rank].eq(e).any(1).nonzero().squeeze(1);
      rows.push_back(tokens.index_select(0, mine));
      expected.counts.back() += mine.size(0);
      experts.insert(experts.end(), static_cast<size_t>(mine.size(0)), static_cast<double>(e));
    }
  }
  expected.rows = at::cat(rows);
  expected.experts = at::tensor(experts, at::kDouble).to(dtype).view({-1, 1});
  return expected;
}

// At once, or in two parts.
at::Tensor to_experts(RowExchange& exchange, const at::Tensor& x, bool in_parts) {
  return in_parts ? exchange.finish_to_experts(exchange.start_to_experts(x))
                  : exchange.to_experts(x);
}

// Each expert multiplies by its number + 1, so the result and its gradients are known.
void check_exchange(const std::vector<at::Tensor>& choices, const ExpertAxis& axis, bool in_parts,
                    at::ScalarType dtype) {
  const at::Tensor& experts_SK = choices[static_cast<size_t>(axis.rank())];
  const int64_t S = experts_SK.size(0), k = experts_SK.size(1);
  const Expected expected = expected_on(choices, axis.experts_of(kExperts, axis.rank()), dtype);
  RowExchange exchange(order_by_expert(experts_SK, kExperts), axis);
  const at::Tensor x = tokens_of(axis.rank(), S, dtype).requires_grad_();
  const at::Tensor rows = to_experts(exchange, x, in_parts);
  EXPECT_EQ(exchange.rows().of_experts(), expected.counts);
  assert_same_bits(rows.detach(), expected.rows, "rows of my experts");

  const at::ScalarType wide = at::promote_types(dtype, at::kFloat);
  const at::Tensor weights = at::full({S, k}, 0.5, wide).requires_grad_();
  const at::Tensor y = exchange.to_tokens(rows * (expected.experts + 1), weights);
  const at::Tensor factors = at::where(experts_SK.ge(0), experts_SK + 1, 0).to(dtype);
  const at::Tensor whole = x.detach() * factors.sum(1, true) * 0.5;
  assert_same_bits(y.detach(), whole, "results");
  // Powers of two and small whole numbers: nothing is rounded.
  const at::Tensor seed = at::full({S, kWidth}, 2, dtype);
  const auto grads = torch::autograd::grad({y}, {x, weights}, {seed});
  assert_same_bits(grads[0], seed * factors.sum(1, true) * 0.5, "gradient of x");
  const at::Tensor sums = x.detach().sum(1, true) * 2;
  assert_same_bits(grads[1], (sums * factors).to(wide), "gradient of the weights");
}

TEST(RowExchange, BringsEachExpertItsTokensInTheOrderOfRanksAndBack) {
  Draw draw(1);
  for (const int world : {1, 2, 3, 4, 5}) {
    for (int round = 0; round < 8; ++round) {
      const auto choices = random_choices(draw, world, 1 + round % 3);
      const at::ScalarType dtype =
          std::array{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}[round % 4];
      run_ranks(world, [&](comm::Communicator& group) {
        check_exchange(choices, {.group = &group, .symmetric = round % 2 == 0},
                       /*in_parts=*/round / 2 % 2 == 0, dtype);
      });
    }
  }
}

// Two hosts of two ranks, three of two and two of three: the same rows in the same order.
TEST(RowExchange, OverHostsBringsTheSameRowsInTheSameOrder) {
  Draw draw(2);
  for (const auto& [world, per_host] : {std::pair{4, 2}, {6, 2}, {6, 3}}) {
    for (int round = 0; round < 6; ++round) {
      const auto choices = random_choices(draw, world, 1 + round % 3);
      run_ranks(world, [&](comm::Communicator& group) {
        const comm::HostGroups hosts =
            comm::split_by_host(group, std::to_string(group.rank() / per_host));
        check_exchange(choices,
                       {.group = &group,
                        .within_host = hosts.within.get(),
                        .between_hosts = hosts.between.get()},
                       /*in_parts=*/round % 2 == 0, round < 3 ? at::kDouble : at::kBFloat16);
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
    const at::Tensor experts = at::arange(2 * kExperts).remainder(kExperts).unsqueeze(1);
    RowExchange exchange(order_by_expert(experts, kExperts), {.group = &group});
    const at::Tensor x = values({2 * kExperts, kWidth}, 0.3).requires_grad_();
    const auto tell = [&](const at::Tensor& y, const char* name) {
      y.register_hook([&order, &mutex, name](const at::Tensor& grad) {
        const std::lock_guard lock(mutex);
        order.emplace_back(name);
        return grad;
      });
      return y;
    };
    const at::Tensor tokens = tell(x * 2, "tokens");
    const at::Tensor started = exchange.start_to_experts(tokens);
    const at::Tensor meanwhile = tell(tell(x * 3, "meanwhile") + 1, "after it");
    const at::Tensor there = tell(exchange.finish_to_experts(started), "there");
    const at::Tensor weights = at::ones({2 * kExperts, 1}, at::kDouble);
    (exchange.to_tokens(there, weights) + meanwhile).sum().backward();
    EXPECT_EQ(order.back(), "tokens");
    EXPECT_LT(std::ranges::find(order, "there"), std::ranges::find(order, "meanwhile"));
    assert_close(x.grad(), at::full(x.sizes(), 5, at::kDouble), 0, 0, "gradient");
  });
}

// Rows of D doubles that hold so many values of 8 bytes.
int64_t rows_of(int64_t num_values) { return (num_values + kWidth - 1) / kWidth; }

// For each group of experts [first[r], first[r + 1]): how many tokens of a choice have some there,
// and how many rows.
std::vector<std::pair<int64_t, int64_t>> tokens_and_rows(const at::Tensor& experts_SK,
                                                         const std::vector<int64_t>& first) {
  std::vector<std::pair<int64_t, int64_t>> result;
  for (size_t r = 0; r + 1 < first.size(); ++r) {
    const at::Tensor there = experts_SK.ge(first[r]).logical_and(experts_SK.lt(first[r + 1]));
    result.emplace_back(there.any(1).sum().item<int64_t>(), there.sum().item<int64_t>());
  }
  return result;
}

TEST(RowExchange, SendsTheBytesItStates) {
  Draw draw(3);
  const int world = 3;
  const auto choices = random_choices(draw, world, 3);
  run_ranks(world, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    const ExpertAxis axis{.group = &counting};
    std::vector<int64_t> first;
    for (int r = 0; r < world; ++r) first.push_back(axis.experts_of(kExperts, r).offset);
    first.push_back(kExperts);
    const auto self = static_cast<size_t>(group.rank());
    const at::Tensor& mine = choices[self];
    int64_t counts = 0, tokens = 0, came = 0;
    for (size_t r = 0; r < choices.size(); ++r) {
      if (r == self) continue;
      const auto [num_tokens, num_rows] = tokens_and_rows(mine, first)[r];
      counts += 8 * (first[r + 1] - first[r] + 1);
      tokens += (num_tokens + rows_of(num_rows)) * kWidth * 8;
      came += tokens_and_rows(choices[r], first)[self].second * kWidth * 8;
    }
    auto take_bytes = [&, before = int64_t{0}]() mutable {
      const int64_t now = counting.sent_by_all_to_all();
      return now - std::exchange(before, now);
    };
    const at::Tensor x = tokens_of(group.rank(), mine.size(0)).requires_grad_();
    const at::Tensor weights = at::ones(mine.sizes(), at::kDouble).requires_grad_();
    for (const bool in_parts : {false, true}) {
      RowExchange exchange(order_by_expert(mine, kExperts), axis);
      const at::Tensor there = to_experts(exchange, x, in_parts);
      EXPECT_EQ(take_bytes(), counts + tokens);
      const at::Tensor y = exchange.to_tokens(there, weights);
      EXPECT_EQ(take_bytes(), came);
      const auto grads = torch::autograd::grad({y.sum()}, {there, weights}, {}, true);
      EXPECT_EQ(take_bytes(), tokens);
      torch::autograd::grad({there}, {x}, {grads[0]});
      EXPECT_EQ(take_bytes(), came);
    }
  });
}

// A token with experts on both ranks of another host crosses once.
TEST(RowExchange, ATokenCrossesOnceToAHost) {
  run_ranks(4, [&](comm::Communicator& group) {
    const comm::HostGroups hosts = comm::split_by_host(group, std::to_string(group.rank() / 2));
    CountingCommunicator between(*hosts.between);
    const ExpertAxis axis{
        .group = &group, .within_host = hosts.within.get(), .between_hosts = &between};
    // Each token has an expert on every rank of four.
    const at::Tensor experts = at::arange(4).expand({6, 4}).contiguous();
    RowExchange exchange(order_by_expert(experts, 4), axis);
    exchange.to_experts(tokens_of(group.rank(), 6));
    // Two experts' counts and a number of tokens; six tokens and the places of their twelve rows.
    EXPECT_EQ(between.sent_by_all_to_all(), 8 * 3 + (6 + rows_of(12)) * kWidth * 8);
  });
}

}  // namespace
}  // namespace trireme::parallel
