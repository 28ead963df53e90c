#include "trireme/watch/run/run_config.h"

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

std::string outline(const std::vector<AxisSize>& axes) {
  std::string text;
  for (const AxisSize& axis : axes)
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.size);
  return text;
}

TEST(RunConfig, KeysHaveTheirTablesInFront) {
  const RunConfig config = parse_run_config(
      "[train]\nsteps = 200\n[optimizer]\nlearning_rate = 1e-3\nname = 'adamw'\nfused = true\n"
      "decay = [1, 2]\n",
      "config.toml");
  EXPECT_EQ(config.problem, "");
  EXPECT_EQ(config.whole("train.steps"), 200);
  EXPECT_EQ(config.keys.at("optimizer.learning_rate"), "0.001");
  EXPECT_EQ(config.keys.at("optimizer.name"), "adamw");
  EXPECT_EQ(config.keys.at("optimizer.fused"), "true");
  EXPECT_FALSE(config.whole("optimizer.name"));
  EXPECT_FALSE(config.whole("none"));
}

TEST(RunConfig, DamageLeavesNoKeysAndSaysWhy) {
  const RunConfig config = parse_run_config("[train\nsteps", "config.toml");
  EXPECT_TRUE(config.keys.empty());
  EXPECT_NE(config.problem.find("config.toml"), std::string::npos);
  EXPECT_NE(read_run_config("/nowhere/config.toml").problem, "");
}

TEST(RunConfig, RanksHavePlacesOnTheMesh) {
  const RunConfig config = parse_run_config(
      "[parallel]\npipeline = 2\ndata = 4\nshard = 2\ntensor = 2\nexpert = 2\n", "c");
  const auto axes = mesh_axes_of(config, 16);
  EXPECT_EQ(outline(axes), "pipeline=2 data=2 shard=2 tensor=2");
  const auto places = coordinates_of(axes, 17);
  EXPECT_EQ(places[0], (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(places[3], (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(places[15], (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_TRUE(places[16].empty());
  EXPECT_EQ(stages_of(axes, 16)[7], 0);
  EXPECT_EQ(stages_of(axes, 16)[8], 1);
}

TEST(RunConfig, RanksFillTheDataAxisWhenTheConfigLeavesItOpen) {
  EXPECT_EQ(outline(mesh_axes_of(parse_run_config("[parallel]\ntensor = 2\n", "c"), 6)),
            "data=3 tensor=2");
  EXPECT_EQ(outline(mesh_axes_of({}, 1)), "data=1");
  EXPECT_EQ(outline(mesh_axes_of({}, 5)), "data=5");
  const RunConfig huge =
      parse_run_config("[parallel]\ntensor = 60000\ncontext = 60000\npipeline = 9\n", "c");
  EXPECT_EQ(outline(mesh_axes_of(huge, 2)), "data=2");
}

TEST(RunConfig, DifferencesNameEachKeyThatDiffers) {
  const RunConfig a = parse_run_config("x = 1\ny = 2\n[t]\nz = ''\n", "a");
  const RunConfig b = parse_run_config("x = 1\ny = 3\n", "b");
  const auto differences = differences_of({&a, &b});
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].key, "t.z");
  EXPECT_EQ(differences[1].key, "y");
  EXPECT_EQ(differences[1].values, (std::vector<std::string>{"2", "3"}));
  EXPECT_TRUE(differences_of({}).empty());
}

TEST(RunConfig, LearnersAreAnAxisAndServersAndTeachersRowsOfTheirOwn) {
  const auto of = [](const std::string& keys, int64_t ranks) {
    return mesh_axes_of(parse_run_config("[parallel]\n" + keys, "config.toml"), ranks);
  };
  const auto learners = of("learners = 2\ndata = 3\ntensor = 2\n", 12);
  ASSERT_EQ(learners.size(), 3u);
  EXPECT_EQ(learners[0].name, "learner");
  EXPECT_EQ(learners[0].size, 2);
  EXPECT_EQ(coordinates_of(learners, 12)[7], (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(of("learners = 2\ndata = 3\n[outer]\nmeeting = \"host:1\"\n", 3).front().name, "data");
  const RunConfig config = parse_run_config("[parallel]\ndata = 2\nservers = 3\n", "config.toml");
  const auto roles = roles_of(config, mesh_axes_of(config, 2));
  ASSERT_EQ(roles.size(), 1u);
  EXPECT_EQ(roles[0].name, "servers");
  EXPECT_EQ(roles[0].first, 2);
  EXPECT_EQ(roles[0].count, 3);
}

}  // namespace
}  // namespace trireme::watch
