#include "trireme/checkpoint/write/save_plan.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"

namespace trireme::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string text_at(int64_t step, const std::string& state,
                    std::map<std::string, TensorRecord> held) {
  return to_text({.step = step, .state = state, .tensors = std::move(held)});
}

TEST(HeldTensors, AreThoseOfEachRankInTheirOrder) {
  const at::Tensor global = at::arange(6);
  const mesh::Layout layout({6}, {{"data", 2}}, {mesh::Placement::sharded(0)});
  std::vector<std::string> texts;
  for (const int rank : {0, 1}) {
    const std::vector<Entry> entries{part_of("w", global, layout, rank)};
    texts.push_back(text_at(7, rank == 0 ? "[1]" : "{}", describe(entries, rank, 2)));
  }
  const Held held = held_at(7, texts);
  EXPECT_EQ(held.state, "[1]");
  ASSERT_EQ(held.by_rank.size(), 2u);
  EXPECT_EQ(held.by_rank[1].at("w").pieces[0].box, (mesh::Box{{3}, {3}}));
  EXPECT_THAT(checkpoint_error([&] { held_at(8, texts); }), HasSubstr("different steps: 8 and 7"));
}

TEST(HeldTensors, WithNamesThatNoReaderTakesAreRefused) {
  const mesh::Layout layout({2}, {{"data", 1}});
  const std::vector<Entry> twice{{"w", at::zeros({2}), layout}, {"w", at::zeros({2}), layout}};
  EXPECT_THAT(checkpoint_error([&] { describe(twice, 0, 1); }), HasSubstr("listed twice"));
  const std::vector<Entry> bad{{"a\nb", at::zeros({2}), layout}};
  EXPECT_THAT(checkpoint_error([&] { describe(bad, 0, 1); }), HasSubstr("control characters"));
}

}  // namespace
}  // namespace trireme::checkpoint
