#include "trireme/mesh/layout.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::mesh {
namespace {

using Kind = Placement::Kind;

Layout random_layout(std::mt19937& generator, bool with_partial) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(generator);
  };
  std::vector<int64_t> shape(draw(0, 3));
  for (int64_t& length : shape) length = draw(0, 7);
  std::vector<Axis> axes;
  std::vector<Placement> placements;
  for (const AxisKind& axis : kAxisKinds) {
    if (draw(0, 1) == 0) continue;
    axes.push_back({std::string(axis.name), draw(1, 4)});
    const int kind = draw(0, with_partial ? 3 : 2);
    if (kind == 3)
      placements.push_back(Placement::partial());
    else if (kind == 0 || shape.empty())
      placements.push_back(Placement::replicated());
    else
      placements.push_back(Placement::sharded(draw(0, static_cast<int>(shape.size()) - 1)));
  }
  return {shape, axes, placements};
}

// How many of `ranks` hold each element of the global tensor, flattened.
std::vector<int> coverage(const Layout& layout, const std::vector<int>& ranks) {
  int64_t numel = 1;
  for (int64_t length : layout.shape()) numel *= length;
  std::vector<int> count(numel);
  for (int rank : ranks) {
    const Box box = layout.local_box(rank);
    for (int64_t i = 0; i < box.numel(); ++i) {
      int64_t rest = i, flat = 0, stride = 1;
      for (size_t d = box.size.size(); d-- > 0;) {
        flat += (box.offset[d] + rest % box.size[d]) * stride;
        rest /= box.size[d];
        stride *= layout.shape()[d];
      }
      ++count.at(flat);
    }
  }
  return count;
}

TEST(Placement, RoundTripsThroughText) {
  for (const Placement& placement :
       {Placement::replicated(), Placement::partial(), Placement::sharded(0),
        Placement::sharded(12), Placement::sharded(1, {0, 3, 3, 7}), Placement::sharded(0, {0, 5})})
    EXPECT_EQ(parse_placement(to_string(placement)), placement);
  EXPECT_EQ(to_string(Placement::sharded(1)), "sharded(1)");
}

TEST(Placement, RefusesAnyOtherText) {
  for (const char* text : {"", "Replicated", "sharded", "sharded(", "sharded()", "sharded(-1)",
                           "sharded(1", "sharded(1))", "sharded(1.5)", "sharded( 1)",
                           "sharded(99999999999)", "sharded(0 at )", "sharded(0 at 1,)",
                           "sharded(0 at 1;2)", "sharded(0 at -1,2)", "sharded(0 1,2)", "partial "})
    EXPECT_THROW(parse_placement(text), ConfigError) << text;
}

TEST(SplitRange, PiecesAreContiguousBalancedAndLongerOnesFirst) {
  for (int64_t length = 0; length < 20; ++length) {
    for (int parts = 1; parts < 9; ++parts) {
      int64_t end = 0;
      for (int i = 0; i < parts; ++i) {
        const Range piece = split_range(length, parts, i);
        ASSERT_EQ(piece.offset, end);
        end += piece.size;
        ASSERT_LE(piece.size, split_range(length, parts, 0).size);
        ASSERT_GE(piece.size, split_range(length, parts, 0).size - 1);
        ASSERT_LE(piece.size, split_range(length, parts, std::max(0, i - 1)).size);
      }
      ASSERT_EQ(end, length);
    }
  }
}

TEST(Box, IntersectsAlsoWhenNothingIsShared) {
  const Box a{{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, {{2, 0}, {9, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_EQ(intersect(a, a), a);
  EXPECT_EQ(intersect(a, {{4, 2}, {1, 1}}).numel(), 0);
  EXPECT_EQ((Box{{}, {}}).numel(), 1) << "a scalar has one element";
  EXPECT_THROW(intersect(a, {{0}, {1}}), InternalError);
}

TEST(Layout, OuterAxisSplitsASharedDimensionFirst) {
  const Layout layout({7}, {{"data", 2}, {"tensor", 3}},
                      {Placement::sharded(0), Placement::sharded(0)});
  const std::vector<Range> expected{{0, 2}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}};
  for (int rank = 0; rank < 6; ++rank) {
    const Box box = layout.local_box(rank);
    EXPECT_EQ((Range{box.offset[0], box.size[0]}), expected[rank]) << rank;
  }
}

TEST(Layout, CutsOfItsOwnSayWhereADimensionIsSplit) {
  const Layout layout({2, 9}, {{"data", 2}, {"shard", 3}},
                      {Placement::replicated(), Placement::sharded(1, {0, 4, 4, 9})});
  const std::vector<Range> expected{{0, 4}, {4, 0}, {4, 5}};
  for (int rank = 0; rank < 6; ++rank) {
    const Box box = layout.local_box(rank);
    EXPECT_EQ((Range{box.offset[0], box.size[0]}), (Range{0, 2})) << rank;
    EXPECT_EQ((Range{box.offset[1], box.size[1]}), expected[rank % 3]) << rank;
    EXPECT_EQ(layout.owner(rank), rank % 3);
  }
}

TEST(Layout, RefusesCutsThatDoNotCoverTheDimensionOnce) {
  const std::vector<Axis> axes{{"shard", 2}};
  for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
           {0, 9}, {0, 3, 6, 9}, {1, 3, 9}, {0, 3, 8}, {0, 10, 9}, {9}})
    EXPECT_THROW(Layout({9}, axes, {Placement::sharded(0, cuts)}), ConfigError);
  EXPECT_THROW(Layout({9}, {{"shard", 2}, {"tensor", 3}},
                      {Placement::sharded(0, {0, 3, 9}), Placement::sharded(0)}),
               ConfigError);
}

TEST(Layout, GivesEmptyShardsWhenThereAreMoreRanksThanElements) {
  const Layout layout({2, 5}, {{"shard", 4}}, {Placement::sharded(0)});
  EXPECT_EQ(layout.local_box(1), (Box{{1, 0}, {1, 5}}));
  EXPECT_EQ(layout.local_box(3), (Box{{2, 0}, {0, 5}}));
  EXPECT_EQ(layout.local_box(3).numel(), 0);
}

TEST(Layout, OfOneRankHoldsEverything) {
  const Layout layout({3, 4}, {});
  EXPECT_EQ(layout.num_ranks(), 1);
  EXPECT_EQ(layout.local_box(0), (Box{{0, 0}, {3, 4}}));
  EXPECT_EQ(layout.owner(0), 0);
}

TEST(Layout, EachReplicaSetTilesTheTensorOnce) {
  std::mt19937 generator(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const Layout layout = random_layout(generator, false);
    // A replica set: the ranks at one position on the replicated axes, anywhere on the sharded.
    std::map<std::vector<int>, std::vector<int>> sets;
    std::vector<int> owners;
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      std::vector<int> key = coordinates_of(layout.axes(), rank);
      for (size_t i = 0; i < key.size(); ++i)
        if (layout.placements()[i].kind == Kind::kSharded) key[i] = 0;
      sets[key].push_back(rank);
      if (layout.owner(rank) == rank) owners.push_back(rank);
    }
    for (const auto& [key, ranks] : sets)
      for (int count : coverage(layout, ranks)) ASSERT_EQ(count, 1) << "trial " << trial;
    for (int count : coverage(layout, owners)) ASSERT_EQ(count, 1) << "trial " << trial;
  }
}

TEST(Layout, OwnerIsTheLowestRankWithTheSameNonEmptyBox) {
  std::mt19937 generator(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const Layout layout = random_layout(generator, false);
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      const Box box = layout.local_box(rank);
      ASSERT_EQ(layout.local_box(layout.owner(rank)), box);
      if (box.numel() == 0) continue;
      int lowest = 0;
      while (layout.local_box(lowest) != box) ++lowest;
      ASSERT_EQ(layout.owner(rank), lowest) << "trial " << trial;
    }
  }
}

TEST(Layout, PartialSumsHaveOwnersOfTheirOwn) {
  const Layout layout({4}, {{"data", 2}, {"tensor", 2}},
                      {Placement::replicated(), Placement::partial()});
  EXPECT_EQ(layout.local_box(1), layout.local_box(0));
  EXPECT_EQ(layout.owner(3), 1);
  EXPECT_EQ(layout.owner(2), 0);
}

TEST(Layout, BoxesDoNotDependOnPartialOrReplicatedPositions) {
  std::mt19937 generator(3);
  for (int trial = 0; trial < 500; ++trial) {
    const Layout layout = random_layout(generator, true);
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      std::vector<int> coordinates = coordinates_of(layout.axes(), rank);
      for (size_t i = 0; i < coordinates.size(); ++i)
        if (layout.placements()[i].kind != Kind::kSharded) coordinates[i] = 0;
      ASSERT_EQ(layout.local_box(rank), layout.local_box(rank_of(layout.axes(), coordinates)));
    }
  }
}

// A matrix split over two tensor ranks by rows, unevenly, whose blocks two ranks share out at cuts
// of their own: what a product of placements cannot say.
TEST(Layout, InsideAnotherItsBoxesAreOfTheWhole) {
  const Layout outer({5, 4}, {{"tensor", 2}}, {Placement::sharded(0, {0, 3, 5})});
  const Layout first =
      Layout({3, 4}, {{"shard", 2}}, {Placement::sharded(0, {0, 1, 3})}).inside(outer, 0);
  const Layout second =
      Layout({2, 4}, {{"shard", 2}}, {Placement::sharded(0, {0, 2, 2})}).inside(outer, 1);
  EXPECT_EQ(first.shape(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(first.whole_shape(), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(first.local_box(1), (Box{{1, 0}, {2, 4}}));
  EXPECT_EQ(first.whole_box(1), (Box{{1, 0}, {2, 4}}));
  EXPECT_EQ(second.local_box(0), (Box{{0, 0}, {2, 4}}));
  EXPECT_EQ(second.whole_box(0), (Box{{3, 0}, {2, 4}}));
  EXPECT_EQ(second.whole_box(1), (Box{{5, 0}, {0, 4}}));
  EXPECT_EQ(*second.outer(), outer);
  EXPECT_NE(first, Layout({3, 4}, {{"shard", 2}}, {Placement::sharded(0, {0, 1, 3})}));
  EXPECT_THROW(Layout({2, 4}, {{"shard", 1}}).inside(outer, 0), ConfigError);
}

TEST(Layout, OnItsOwnIsTheWhole) {
  const Layout layout({6}, {{"shard", 2}}, {Placement::sharded(0)});
  EXPECT_EQ(layout.outer(), nullptr);
  EXPECT_EQ(layout.whole_shape(), layout.shape());
  EXPECT_EQ(layout.whole_box(1), layout.local_box(1));
}

TEST(Layout, RefusesWhatMakesNoSense) {
  const std::vector<Axis> axes{{"tensor", 2}};
  EXPECT_THROW(Layout({4}, axes, {Placement::sharded(1)}), ConfigError);
  EXPECT_THROW(Layout({4}, axes, {Placement::sharded(-1)}), ConfigError);
  EXPECT_THROW(Layout({}, axes, {Placement::sharded(0)}), ConfigError);
  EXPECT_THROW(Layout({4}, axes, {}), ConfigError);
  EXPECT_THROW(Layout({-1}, axes), ConfigError);
  EXPECT_THROW(Layout({4}, {{"tensor", 0}}), ConfigError);
  EXPECT_THROW(Layout({4}, axes).local_box(2), InternalError);
  EXPECT_THROW(Layout({4}, axes).owner(-1), InternalError);
}

}  // namespace
}  // namespace trireme::mesh
