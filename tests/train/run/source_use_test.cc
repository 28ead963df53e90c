#include "trireme/train/run/source_use.h"

#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Samples that nobody reads.
class Empty : public dataset::Source {
 public:
  explicit Empty(dataset::Blend blend) : blend_(std::move(blend)) {}
  int64_t size() const override { return blend_.size(); }
  const dataset::Blend* blend() const override { return &blend_; }
  dataset::NamedTensors get(int64_t /*index*/, std::optional<RandomKey> /*key*/) const override {
    return {{"x", at::empty({1})}};
  }

 private:
  dataset::Blend blend_;
};

Empty empty_blend(bool repeats) {
  return Empty(dataset::Blend({{.name = "code", .about = "9 tokens", .weight = 7, .size = 40},
                               {.name = "web", .about = "5 tokens", .weight = 3, .size = 12}},
                              repeats));
}

TEST(SourceUse, HasTheShareAndThePassesOfEachSource) {
  const Empty source = empty_blend(true);
  const std::vector<SourceUse> uses = source_uses(source.blend(), 80);
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(uses[0].name, "code");
  EXPECT_EQ(uses[0].about, "9 tokens");
  EXPECT_EQ(uses[0].samples, 40);
  EXPECT_DOUBLE_EQ(uses[0].share, 0.7);
  EXPECT_DOUBLE_EQ(uses[0].passes, 56.0 / 40);
  EXPECT_DOUBLE_EQ(uses[1].passes, 24.0 / 12);
  EXPECT_TRUE(source_uses(nullptr, 80).empty());
}

// The thirteenth sample of web is number 42, so ten steps of four are the most.
TEST(SourceUse, ARunThatNeedsMoreThanASourceHasIsRefusedWithTheStepsThatItCanMake) {
  const Empty once = empty_blend(false), again = empty_blend(true);
  EXPECT_EQ(once.blend()->fresh().samples, 42);
  const dataset::BatchLoader batches(once, {.global_batch = 4, .micro_batch = 4});
  require_fresh_samples(once.blend(), batches, 10);
  require_fresh_samples(again.blend(), batches, 1000);
  require_fresh_samples(nullptr, batches, 1000);
  const std::string error =
      harness::message_of<ConfigError>([&] { require_fresh_samples(once.blend(), batches, 11); });
  for (const char* const words : {"data.repeat_sources is false", "11 steps", "13 samples of web",
                                  "it has 12", "enough for 10 steps"}) {
    EXPECT_NE(error.find(words), std::string::npos) << error;
  }
  // A resumed run counts from where its data stands.
  const dataset::BatchLoader resumed(
      once, {.global_batch = 1, .micro_batch = 1, .first_step = 9, .first_sample = 36});
  require_fresh_samples(once.blend(), resumed, 15);
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              require_fresh_samples(once.blend(), resumed, 16);
            }).find("enough for 15 steps"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::train
