#include "trireme/mesh/device_mesh.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::mesh {
namespace {

// A rank that talks to no one: it records the calls of split, which is all a mesh makes, so that
// one thread can play every rank of a world in turn.
class LonelyRank : public comm::Communicator {
 public:
  struct Split {
    int color;
    int key;
  };

  LonelyRank(int rank, int size, std::string name = "world")
      : rank_(rank), size_(size), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  bool reduces_in_rank_order() const override { return true; }
  const std::map<std::string, Split>& splits() const { return splits_; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    EXPECT_TRUE(splits_.emplace(name, Split{color, key}).second) << name << " was made twice";
    return std::make_unique<LonelyRank>(0, 1, name);
  }

  comm::WorkPtr run(comm::Collective) override { return nullptr; }
  void abort(const std::string&) override {}
  at::Tensor symmetric_empty(at::IntArrayRef, c10::ScalarType) override { return {}; }

 private:
  int rank_;
  int size_;
  std::string name_;
  std::map<std::string, Split> splits_;
};

// What the mesh passes to split for the group `axes` on each rank of a world with `mesh_axes`:
// color -> ranks in it.
std::map<int, std::vector<int>> groups_of(const std::vector<Axis>& mesh_axes, int num_ranks,
                                          const std::vector<std::string_view>& axes) {
  std::string name;
  for (std::string_view axis : axes) {
    if (!name.empty()) name += '.';
    name += axis;
  }
  std::map<int, std::vector<int>> members;
  for (int rank = 0; rank < num_ranks; ++rank) {
    LonelyRank world(rank, num_ranks);
    const DeviceMesh mesh(world, mesh_axes);
    mesh.joined_group(axes);
    EXPECT_EQ(world.splits().at(name).key, rank) << "a group is in world order";
    members[world.splits().at(name).color].push_back(rank);
  }
  return members;
}

std::vector<std::vector<int>> members_of(const std::map<int, std::vector<int>>& groups) {
  std::vector<std::vector<int>> members;
  for (const auto& [color, ranks] : groups) members.push_back(ranks);
  return members;
}

std::string error_of(const std::vector<Axis>& axes, int num_ranks) {
  LonelyRank world(0, num_ranks);
  try {
    const DeviceMesh mesh(world, axes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

using Members = std::vector<std::vector<int>>;

TEST(Coordinates, AreRowMajorAndRoundTrip) {
  const std::vector<Axis> axes{{"pipeline", 2}, {"data", 3}, {"tensor", 4}};
  EXPECT_EQ(coordinates_of(axes, 0), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(coordinates_of(axes, 1), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(coordinates_of(axes, 23), (std::vector<int>{1, 2, 3}));
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(rank_of(axes, coordinates_of(axes, rank)), rank);
  EXPECT_EQ(rank_of({}, coordinates_of({}, 0)), 0);
}

TEST(DeviceMesh, KnowsSizeAndPositionOnEachAxis) {
  LonelyRank world(5, 6);
  const DeviceMesh mesh(world, {{"data", 3}, {"tensor", 2}});
  EXPECT_EQ(mesh.size("data"), 3);
  EXPECT_EQ(mesh.coordinate("data"), 2);
  EXPECT_EQ(mesh.coordinate("tensor"), 1);
  EXPECT_EQ(mesh.size("pipeline"), 1);
  EXPECT_EQ(mesh.coordinate("pipeline"), 0);
  EXPECT_EQ(mesh.coordinates(), (std::vector<int>{2, 1}));
  EXPECT_EQ(&mesh.world(), &world);
}

TEST(DeviceMesh, NeighboursOnTensorAreNeighboursInTheWorld) {
  const std::vector<Axis> axes{{"data", 3}, {"tensor", 2}};
  EXPECT_EQ(members_of(groups_of(axes, 6, {"tensor"})), (Members{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(members_of(groups_of(axes, 6, {"data"})), (Members{{0, 2, 4}, {1, 3, 5}}));
}

TEST(DeviceMesh, JoinsAxesIntoOneGroup) {
  const std::vector<Axis> axes{{"pipeline", 2}, {"data", 2}, {"shard", 2}};
  EXPECT_EQ(members_of(groups_of(axes, 8, {"data", "shard"})),
            (Members{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(members_of(groups_of(axes, 8, {"pipeline", "shard"})),
            (Members{{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

TEST(DeviceMesh, AxisItDoesNotHaveIsAGroupOfEachRankAlone) {
  EXPECT_EQ(members_of(groups_of({{"data", 3}}, 3, {"context"})), (Members{{0}, {1}, {2}}));
}

TEST(DeviceMesh, MakesEachGroupOnce) {
  LonelyRank world(0, 2);
  const DeviceMesh mesh(world, {{"data", 2}});
  EXPECT_EQ(&mesh.group("data"), &mesh.group("data"));
  const std::vector<std::string_view> joined{"data", "shard"};
  EXPECT_EQ(&mesh.joined_group(joined), &mesh.joined_group(joined));
  EXPECT_NE(&mesh.group("data"), &mesh.group("shard"));
}

TEST(DeviceMesh, RefusesAMisspeltAxis) {
  LonelyRank world(0, 1);
  const DeviceMesh mesh(world, {});
  EXPECT_THROW(mesh.group("tensors"), ConfigError);
  const std::vector<std::string_view> joined{"data", "shards"};
  EXPECT_THROW(mesh.joined_group(joined), ConfigError);
}

TEST(DeviceMesh, SaysWhatIsWrongWithItsAxes) {
  EXPECT_EQ(error_of({{"data", 2}, {"tensor", 2}}, 3),
            "the product of the mesh axes is 4 but there are 3 ranks; make them equal");
  EXPECT_EQ(error_of({{"data", 0}}, 1), "mesh axis \"data\" has size 0; expected at least 1");
  EXPECT_NE(error_of({{"tensor", 1}, {"data", 1}}, 1).find("out of order"), std::string::npos);
  EXPECT_NE(error_of({{"data", 1}, {"data", 1}}, 1).find("repeated"), std::string::npos);
  EXPECT_NE(error_of({{"dat", 1}}, 1).find("\"dat\" is unknown"), std::string::npos);
  EXPECT_NE(error_of({{"data", 1 << 30}, {"shard", 1 << 30}, {"context", 1 << 30}}, 0), "");
}

}  // namespace
}  // namespace trireme::mesh
