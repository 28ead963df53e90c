#include "trireme/verify/tensor_differences.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/temporary_folder.h"
#include "tests/verify/recorded.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::verify {
namespace {

class TensorDifferencesTest : public testing::Test {
 protected:
  SourceDifferences of(const Tensors& a, const Tensors& b, const DifferenceOptions& options = {}) {
    const auto saved = [&](const char* name, const Tensors& tensors) {
      save_tensors(folder_.path() / name, 1, tensors, "{}");
      return std::make_unique<checkpoint::SavedTensors>(folder_.path() / name /
                                                        checkpoint::folder_name(1));
    };
    return differences(*saved("a", a), *saved("b", b), options);
  }
  harness::TemporaryFolder folder_;
};

TEST_F(TensorDifferencesTest, NamesWhatDiffersAndWhatIsTheSame) {
  const at::Tensor x = at::linspace(-2, 2, 8, at::kDouble);
  at::Tensor y = x.clone();
  y[0] += 0.5;
  const SourceDifferences found =
      of({{"x", x}, {"y", x}, {"only_a", x}}, {{"x", x}, {"y", y}, {"only_b", x}});
  EXPECT_EQ(found.same, std::set<std::string>{"x"});
  EXPECT_EQ(found.tensors.size(), 3U);
  EXPECT_EQ(found.tensors.at("y").difference.absolute, 0.5);
  EXPECT_EQ(found.tensors.at("y").difference.relative, 0.25);
  EXPECT_EQ(found.tensors.at("y").num_different, 1);
  EXPECT_TRUE(std::isinf(found.tensors.at("only_a").difference.absolute));
  EXPECT_EQ(found.tensors.at("only_b").note, "only B has it");
}

TEST_F(TensorDifferencesTest, TensorsOfFewerBitsAreNotJudged) {
  const at::Tensor wide = at::ones({3}, at::kDouble), narrow = at::ones({3}, at::kBFloat16);
  const Tensors a = {{"wide", wide}, {"narrow", narrow}};
  const Tensors b = {{"wide", wide * 2}, {"narrow", narrow * 2}};
  const SourceDifferences found = of(a, b, {.dtype = at::kFloat});
  EXPECT_TRUE(found.tensors.at("wide").is_judged);
  EXPECT_FALSE(found.tensors.at("narrow").is_judged);
}

TEST_F(TensorDifferencesTest, NothingThatIsWantedIsNoDifference) {
  const at::Tensor x = at::ones({3});
  const SourceDifferences found =
      of({{"x", x}}, {{"x", x * 2}}, {.wanted = [](const std::string&) { return false; }});
  EXPECT_TRUE(found.tensors.empty());
  EXPECT_TRUE(found.same.empty());
}

TEST_F(TensorDifferencesTest, PartsOfTensorsAreInMemoryOneAfterTheOther) {
  const at::Tensor x = at::rand({4096, 1024});  // 16 MiB
  at::Tensor y = x.clone();
  y[4095][1023] += 0.5;
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  save_tensors(folder_.path() / "a", 1, {{"x", x}, {"z", x}}, "{}");
  save_tensors(folder_.path() / "b", 1, {{"x", y}, {"z", x}}, "{}");
  const checkpoint::SavedTensors a(folder_.path() / "a" / checkpoint::folder_name(1));
  const checkpoint::SavedTensors b(folder_.path() / "b" / checkpoint::folder_name(1));
  const SourceDifferences found = differences(a, b);
  EXPECT_EQ(found.tensors.at("x").num_different, 1);
  EXPECT_EQ(found.same, std::set<std::string>{"z"});
  EXPECT_LE(live->peak(), 2 << 20);
}

TEST_F(TensorDifferencesTest, TheLargerOfSeveralIsTaken) {
  SourceDifferences into{.tensors = {{"x", {.difference = {1, 0.1}}}}, .same = {"y", "z"}};
  take_larger(into, {.tensors = {{"x", {.difference = {0.5, 0.2}, .num_different = 3}},
                                 {"y", {.difference = {2, 2}}}},
                     .same = {"z"}});
  EXPECT_EQ(into.tensors.at("x").difference.absolute, 1);
  EXPECT_EQ(into.tensors.at("x").difference.relative, 0.2);
  EXPECT_EQ(into.tensors.at("x").num_different, 3);
  EXPECT_EQ(into.tensors.at("y").difference.absolute, 2);
  EXPECT_EQ(into.same, std::set<std::string>{"z"});
}

TEST(NumberDifferences, AreRelativeToTheLarger) {
  EXPECT_EQ(between(2, 4).absolute, 2);
  EXPECT_EQ(between(2, 4).relative, 0.5);
  EXPECT_EQ(between(3, 3).absolute, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(between(nan, nan).absolute, 0);
  EXPECT_TRUE(std::isinf(between(nan, 1).absolute));
}

}  // namespace
}  // namespace trireme::verify
