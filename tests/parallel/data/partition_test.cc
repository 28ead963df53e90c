#include "trireme/parallel/data/bucket_plan.h"

#include <algorithm>
#include <map>
#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

std::vector<std::vector<int64_t>> random_shapes(std::mt19937& generator) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  std::vector<std::vector<int64_t>> shapes(static_cast<size_t>(draw(1, 12)));
  for (auto& shape : shapes) {
    const int64_t longest = draw(0, 1) ? 300 : 9;
    for (int64_t d = draw(0, 3); d > 0; --d) shape.push_back(draw(draw(0, 3) ? 1 : 0, longest));
    if (shape.size() == 3) shape[0] = draw(1, 4);
  }
  return shapes;
}

std::vector<at::Tensor> tensors_of(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<at::Tensor> tensors;
  for (const auto& shape : shapes) tensors.push_back(at::empty(shape));
  return tensors;
}

TEST(Grains, AreWholeRowsOfAtLeast1024ElementsAndAMultipleOf64) {
  EXPECT_EQ(grains_of({512, 256}).elements, 1024);
  EXPECT_EQ(grains_of({512, 256}).count, 128);
  EXPECT_EQ(grains_of({512, 640}).elements, 1280);
  EXPECT_EQ(grains_of({512, 3}).rows, 384) << "3 * 384 is the first multiple of 64 past 1024";
  EXPECT_EQ(grains_of({512, 3}).count, 2);
  EXPECT_EQ(grains_of({5, 1000}).rows, 5) << "64 rows would be needed";
  EXPECT_EQ(grains_of({1, 1, 4096}).dim, 2) << "the first dimension longer than 1";
  EXPECT_EQ(grains_of({1, 1, 4096}).count, 4);
  EXPECT_EQ(grains_of({}).count, 1);
  EXPECT_EQ(grains_of({1}).count, 1);
  EXPECT_EQ(grains_of({0, 5}).count, 0);
  EXPECT_EQ(grains_of({5, 0}).count, 0);
}

// Every element of every parameter belongs to exactly one rank, in whole grains, and the layouts,
// the cuts and the views say the same.
TEST(Partition, CoversEveryParameterOnceInWholeGrains) {
  std::mt19937 generator(7);
  for (int round = 0; round < 60; ++round) {
    const auto parameters = tensors_of(random_shapes(generator));
    const int64_t bucket_bytes = int64_t{1} << std::uniform_int_distribution<int>(4, 20)(generator);
    const auto buckets = make_buckets(parameters, bucket_bytes);
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const bool whole : {false, true}) {
        const auto cuts =
            partition(buckets, parameters, {.num_ranks = ranks, .whole_parameters = whole});
        for (size_t b = 0; b < buckets.size(); ++b) {
          ASSERT_EQ(cuts[b].size(), static_cast<size_t>(ranks) + 1);
          ASSERT_TRUE(std::ranges::is_sorted(cuts[b]));
          ASSERT_EQ(cuts[b].front(), 0);
          ASSERT_EQ(cuts[b].back(), buckets[b].num_elements);
          at::Tensor flat = at::arange(buckets[b].num_elements, at::kFloat);
          const auto views = view_parameters(buckets[b], flat, parameters);
          for (size_t i = 0; i < views.size(); ++i) {
            const auto shape = views[i].sizes();
            const mesh::Layout layout = layout_of(buckets[b], i, shape, cuts[b]);
            const Grains grains = grains_of(shape);
            at::Tensor joined = views[i].reshape(layout.shape());
            int64_t covered = 0;
            for (int rank = 0; rank < ranks; ++rank) {
              const mesh::Box box = layout.local_box(ranks == 1 ? 0 : rank);
              const int64_t begin = cuts[b][static_cast<size_t>(rank)];
              const at::Tensor part =
                  flat.narrow(0, begin, cuts[b][static_cast<size_t>(rank) + 1] - begin);
              const at::Tensor shard = view_shard(buckets[b], i, layout, cuts[b], rank, part);
              ASSERT_EQ(shard.sizes(), at::IntArrayRef(box.size));
              ASSERT_TRUE(shard.is_contiguous());
              if (box.numel() == 0) continue;
              const auto dim = grains.dim;
              ASSERT_TRUE(shard.equal(joined.narrow(dim, box.offset[dim], box.size[dim])));
              ASSERT_EQ(box.offset[dim] % grains.rows, 0);
              ASSERT_TRUE(!whole || box.numel() == views[i].numel());
              covered += box.numel();
            }
            ASSERT_EQ(covered, views[i].numel());
          }
        }
      }
    }
  }
}

// The blocks of a small Llama: what the memory per rank depends on.
TEST(Partition, SharesAModelOutEvenlyInBucketsOfAnySize) {
  std::vector<std::vector<int64_t>> shapes{{4096, 192}};
  for (int layer = 0; layer < 4; ++layer) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{192},
                                                                               {192, 192},
                                                                               {96, 192},
                                                                               {96, 192},
                                                                               {192, 192},
                                                                               {192},
                                                                               {512, 192},
                                                                               {512, 192},
                                                                               {192, 512}})
      shapes.push_back(shape);
  }
  const auto parameters = tensors_of(shapes);
  for (const int64_t bucket_bytes : {int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 30}) {
    const auto buckets = make_buckets(parameters, bucket_bytes);
    for (const int ranks : {2, 3, 4}) {
      const auto cuts = partition(buckets, parameters, {.num_ranks = ranks});
      std::vector<int64_t> load(static_cast<size_t>(ranks));
      for (const auto& cut : cuts) {
        for (size_t r = 0; r < load.size(); ++r) load[r] += cut[r + 1] - cut[r];
      }
      // Each cut is off by half a grain at most, of 1152 elements here: a load by a whole one.
      EXPECT_LE(*std::ranges::max_element(load) - *std::ranges::min_element(load), 2 * 1152)
          << bucket_bytes << " bytes, " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
