#include "trireme/train/state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(RunState, SurvivesItsText) {
  const RunState state{7, 56, 6, "[train]\nsteps = 7\n"};
  const RunState again = parse_state(to_json(state), "here");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.next_sample, 56);
  EXPECT_EQ(again.optimizer_steps, 6);
  EXPECT_EQ(again.config, state.config);
}

TEST(RunState, WhatIsNotARunsStateIsRefusedWithThePath) {
  for (const char* text : {"{}", "nonsense", R"({"step": "one"})"}) {
    try {
      parse_state(text, "some/step-000010");
      FAIL() << text;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("some/step-000010"), std::string::npos)
          << error.what();
    }
  }
}

TEST(RunState, EntriesHoldEveryParameterAndItsOptimizerStateWithLayouts) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}});
    const NamedTensors parameters = {{"a.weight", at::zeros({3, 2})}, {"b.weight", at::zeros({5})}};
    const AdamW optimizer(parameters, {});
    const auto entries = checkpoint_entries(parameters, optimizer, mesh);
    ASSERT_EQ(entries.size(), 6u);
    EXPECT_EQ(entries[0].name, "a.weight");
    EXPECT_TRUE(entries[0].local.is_alias_of(parameters[0].second));
    EXPECT_EQ(entries[2].name, "optimizer.exp_avg.a.weight");
    for (const auto& entry : entries) {
      EXPECT_EQ(entry.layout.num_ranks(), 2);
      EXPECT_EQ(entry.layout.local_box(1).size, entry.local.sizes().vec());
    }
  });
}

}  // namespace
}  // namespace trireme::train
