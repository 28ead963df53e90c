#include "trireme/train/offload/state_store.h"

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/offload/stores.h"

namespace trireme::train {
namespace {

using Place = OffloadPlace;

TEST(StateStore, EveryPlaceHoldsTheSame) {
  const harness::TemporaryFolder folder;
  const StatePlan plan = make_plan(2);
  std::vector<std::vector<at::Tensor>> results;
  for (const Place place : {Place::kNone, Place::kHost, Place::kDisk}) {
    const auto store = make_state_store({.place = place, .folder = folder.path()}, plan);
    change(*store, all_chunks(plan));
    change(*store, all_chunks(plan));
    results.push_back(contents(*store, plan));
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    harness::assert_same_bits(results[1][i], results[0][i], "host");
    harness::assert_same_bits(results[2][i], results[0][i], "disk");
  }
}

TEST(StateStore, CountsElementsAndBytes) {
  EXPECT_EQ((StateTensor{{2, 3}, at::kDouble}).numel(), 6);
  EXPECT_EQ((StateTensor{{2, 3}, at::kDouble}).num_bytes(), 48);
  EXPECT_EQ((StateTensor{{0, 3}, at::kFloat}).num_bytes(), 0);
}

}  // namespace
}  // namespace trireme::train
