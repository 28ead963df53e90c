#include "trireme/tasks/recommend/metrics/recall.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

// Small whole numbers: every order of a sum has the same value, and many items tie.
at::Tensor draw_vectors(harness::Draw& draw, int64_t count, int64_t D) {
  const at::Tensor vectors = at::empty({count, D}, at::kFloat);
  for (int64_t i = 0; i < vectors.numel(); ++i) {
    vectors.mutable_data_ptr<float>()[i] = static_cast<float>(draw.below(5) - 2);
  }
  return vectors;
}

at::Tensor draw_items(harness::Draw& draw, int64_t count, int64_t N) {
  const at::Tensor items = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) items.mutable_data_ptr<int64_t>()[i] = draw.below(N);
  return items;
}

// Sorts all items for each query.
at::Tensor places_by_sorting(const at::Tensor& queries, const at::Tensor& items,
                             const at::Tensor& wanted) {
  const at::Tensor scores = at::matmul(queries, items.t());
  const at::Tensor order = std::get<1>(at::sort(scores, true, 1, true));
  return order.eq(wanted.unsqueeze(1)).to(at::kLong).argmax(1);
}

TEST(Recall, PlacesAreThoseOfAStableSort) {
  harness::Draw draw(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t N = 1 + draw.below(200);
    const int64_t D = 1 + draw.below(9);
    const at::Tensor queries = draw_vectors(draw, draw.below(20), D);
    const at::Tensor items = draw_vectors(draw, N, D);
    const at::Tensor wanted = draw_items(draw, queries.size(0), N);
    const at::Tensor places = places_of(queries, items, wanted);
    EXPECT_TRUE(at::equal(places, places_by_sorting(queries, items, wanted))) << round;
    EXPECT_TRUE(
        at::equal(places_of(queries.to(at::kDouble), items.to(at::kDouble), wanted), places));
    EXPECT_TRUE(at::equal(places_of(queries.to(at::kHalf), items.to(at::kHalf), wanted), places));
    EXPECT_TRUE(at::equal(places_of(queries, items.t().contiguous().t(), wanted), places));
  }
}

TEST(Recall, ANaNComesFirstAndIsNeverRight) {
  const at::Tensor queries = at::ones({3, 1});
  const at::Tensor items = at::tensor({1.0F, NAN, 5.0F, 1.0F}).view({4, 1});
  EXPECT_TRUE(at::equal(places_of(queries, items, at::tensor({2, 1, 3})), at::tensor({1, 4, 3})));
}

TEST(Recall, CountsQueriesBelowK) {
  const at::Tensor places = at::tensor({0, 9, 10, 3});
  EXPECT_TRUE(at::equal(recall_state(places, 10), at::tensor({3.0, 4.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(recall_state(places, 1), at::tensor({1.0, 4.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(recall_state(at::empty({0}, at::kLong), 1), at::zeros({2}, at::kDouble)));
}

TEST(Recall, RefusesWhatDoesNotFitInOneLine) {
  const auto error = [](const at::Tensor& queries, const at::Tensor& items,
                        const at::Tensor& wanted) {
    return harness::message_of<ConfigError>([&] { places_of(queries, items, wanted); });
  };
  EXPECT_EQ(error(at::zeros({2, 3}), at::zeros({4, 3}), at::tensor({0, 4})),
            "query 1 has the item 4; expected 0 to 3");
  EXPECT_EQ(error(at::zeros({2, 3}), at::zeros({4, 2}), at::tensor({0, 0})),
            "queries [2, 3] and items [4, 2]; expected [B, D] and [N, D] of one dtype");
  EXPECT_EQ(error(at::zeros({2, 3}), at::zeros({4, 3}), at::tensor({0})),
            "1 items for 2 queries; expected one each");
}

// Rows of `all` for this rank; some ranks may get none.
std::pair<int64_t, int64_t> draw_part(harness::Draw& draw, comm::Communicator& group,
                                      int64_t size) {
  std::vector<int64_t> ends(static_cast<size_t>(group.size()) - 1);
  for (int64_t& end : ends) end = draw.below(size + 1);
  ends.insert(ends.end(), {0, size});
  std::ranges::sort(ends);
  const auto rank = static_cast<size_t>(group.rank());
  return {ends[rank], ends[rank + 1]};
}

TEST(Recall, PlacesHaveTheSameBitsForAnyDivisionOverRanks) {
  for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    harness::run_ranks(num_ranks, [](comm::Communicator& inner) {
      harness::Draw draw(2);  // the same on every rank
      for (int round = 0; round < 30; ++round) {
        harness::CountingCommunicator group(inner);
        const int64_t N = 1 + draw.below(300);
        const int64_t D = 1 + draw.below(20);
        // Not whole numbers: a sum's bits depend on its order.
        const at::Tensor queries = draw_vectors(draw, draw.below(30), D).mul(0.37F);
        const at::Tensor items = draw_vectors(draw, N, D).mul(1.1F).sin();
        const at::Tensor wanted = draw_items(draw, queries.size(0), N);
        const auto [query, query_end] = draw_part(draw, group, queries.size(0));
        const auto [item, item_end] = draw_part(draw, group, N);
        const at::Tensor places =
            gather_places(group, queries.slice(0, query, query_end), items.slice(0, item, item_end),
                          wanted.slice(0, query, query_end));
        const at::Tensor expected = places_of(queries, items, wanted).slice(0, query, query_end);
        EXPECT_TRUE(at::equal(places, expected)) << round;
        const int64_t others = group.size() - 1;
        const int64_t received = queries.size(0) - (query_end - query);
        EXPECT_EQ(group.ledger().of(group.name(), "all_gather").bytes,
                  others * 16 + received * (4 * D + 8));
      }
    });
  }
}

}  // namespace
}  // namespace trireme::tasks
