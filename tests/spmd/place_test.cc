#include "trireme/spmd/place.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

TEST(Place, BlocksAreThoseOfTheLayout) {
  harness::run_ranks(6, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 3}, {"context", 1}, {"tensor", 2}});
    const Grid grid(mesh);
    ASSERT_EQ(grid.num_axes(), 2);
    EXPECT_EQ(grid.find("tensor"), 1);
    EXPECT_EQ(grid.find("context"), -1);
    Places places;
    places[0] = Place::sharded(0);
    for (const Place& inner : {Place::replicated(), Place::sharded(0), Place::sharded(1)}) {
      places[1] = inner;
      const mesh::Layout layout = layout_of(grid, places, {7, 5});
      EXPECT_EQ(local_sizes(grid, places, {7, 5}), layout.local_box(world.rank()).size);
      EXPECT_EQ(local_range(grid, places, 0, 7).offset, layout.local_box(world.rank()).offset[0]);
      EXPECT_EQ(places_of(grid, layout), places);
    }
    EXPECT_EQ(num_splits(places, 0), 1);
    EXPECT_EQ(to_string(grid, places), "[data: sharded(0), tensor: sharded(1)]");
  });
}

TEST(Place, CutsAreKept) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const Grid grid(mesh);
    Places places;
    places[0] = {Place::Kind::kSharded, 0,
                 std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 1, 6})};
    EXPECT_EQ(local_sizes(grid, places, {6})[0], world.rank() == 0 ? 1 : 5);
    EXPECT_EQ(places_of(grid, layout_of(grid, places, {6})), places);
    EXPECT_NE(places[0], Place::sharded(0));
  });
}

TEST(Place, AnUnknownAxisIsRefused) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 1}});
    EXPECT_THROW(Grid(mesh).find("oars"), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::spmd
