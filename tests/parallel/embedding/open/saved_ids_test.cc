#include "trireme/parallel/embedding/open/saved_ids.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel::inline internal {
namespace {

at::Tensor ids_in_order(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < count; ++id) ids.push_back(id);
  std::ranges::sort(ids, {}, open_key);
  return at::tensor(ids, at::kLong);
}

TEST(SavedIds, AreCutAtTheRanksPlaces) {
  const at::Tensor ids = ids_in_order(100);
  constexpr int64_t kPlaces = int64_t{1} << kOpenPlaceBits;
  const int64_t third = place_of_open_key(open_key(ids[33].item<int64_t>()));
  EXPECT_EQ(
      cuts_of_saved(ids, "t",
                    std::vector<mesh::Range>{{0, third}, {third, 0}, {third, kPlaces - third}}),
      (std::vector<int64_t>{0, 33, 33, 100}));
  EXPECT_EQ(cuts_of_saved(ids, "t", std::vector<mesh::Range>{{0, kPlaces}, {0, kPlaces}}),
            (std::vector<int64_t>{0, 0, 100}));
  EXPECT_EQ(cuts_of_saved(ids_in_order(0), "t", std::vector<mesh::Range>{{0, kPlaces}}),
            (std::vector<int64_t>{0, 0}));
}

TEST(SavedIds, AreRefusedOutOfOrderOrTwice) {
  const std::vector<mesh::Range> places{{0, int64_t{1} << kOpenPlaceBits}};
  const at::Tensor ids = ids_in_order(9);
  EXPECT_THROW(cuts_of_saved(ids.flip(0), "t", places), CheckpointError);
  EXPECT_THROW(cuts_of_saved(ids[3].repeat(2), "t", places), CheckpointError);
  EXPECT_THROW(cuts_of_saved(ids.view({3, 3}), "t", places), CheckpointError);
  EXPECT_THROW(cuts_of_saved(ids.to(at::kInt), "t", places), CheckpointError);
}

TEST(SavedIds, AreKeysWithNumbers) {
  const at::Tensor ids = ids_in_order(4), numbers = at::arange(4);
  const OpenKeys keys = keys_of_saved(ids, numbers + 7, numbers);
  EXPECT_TRUE(std::ranges::is_sorted(keys.keys));
  EXPECT_TRUE(at::equal(ids_to_save(keys.keys), ids));
  EXPECT_EQ(keys.last_uses, (std::vector<int64_t>{7, 8, 9, 10}));
  EXPECT_EQ(keys.numbers, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(keys_of_saved(ids, numbers).numbers.empty());
  EXPECT_EQ(uses_of_saved(at::tensor({1.0F, 2.5F}), "t"), (std::vector<float>{1, 2.5F}));
  EXPECT_TRUE(uses_of_saved(at::Tensor(), "t").empty());
  EXPECT_THROW(uses_of_saved(at::tensor({1.0F, 0.5F}), "t"), CheckpointError);
}

TEST(SavedIds, HaveARowOrWaitForOne) {
  const OpenKeys rows{.keys = {-9, 2, 5}}, waiting{.keys = {-8, 3}}, both{.keys = {2}};
  EXPECT_NO_THROW(check_waiting(rows, waiting, "t"));
  EXPECT_NO_THROW(check_waiting(rows, {}, "t"));
  EXPECT_THROW(check_waiting(rows, both, "t"), CheckpointError);
}

TEST(SavedIds, HaveALayout) {
  const mesh::Axis axis{"data", 2};
  const mesh::Layout cut = layout_of_saved({2, 4}, axis, mesh::Placement::sharded(0), {0, 3, 5});
  EXPECT_EQ(cut.shape(), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(cut.local_box(1).size, (std::vector<int64_t>{2, 4}));
  const mesh::Layout all = layout_of_saved({5}, axis, mesh::Placement::replicated(), {0, 0, 5});
  EXPECT_EQ(all.local_box(1).size, (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
