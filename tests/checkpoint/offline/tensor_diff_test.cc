#include "trireme/checkpoint/offline/tensor_diff.h"

#include <cmath>
#include <limits>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/offline/mixed_tensors.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::checkpoint {
namespace {

using harness::message_of;
using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Tensors in memory.
class Held : public TensorSource {
 public:
  explicit Held(std::map<std::string, at::Tensor> values) : values_(std::move(values)) {
    for (const auto& [name, tensor] : values_)
      tensors_[name] = {tensor.scalar_type(), tensor.sizes().vec()};
  }
  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override { return values_.at(name); }
  std::string kind() const override { return "held"; }

 private:
  std::map<std::string, at::Tensor> values_;
  std::map<std::string, SourceTensor> tensors_;
};

TEST(CompareValues, FindsNothingInTheSameBits) {
  for (const Global& global : mixed_tensors(1)) {  // random bits, so NaNs of all kinds
    const ValueDiff same = compare_values(global.tensor, global.tensor.clone());
    EXPECT_EQ(same.num_elements, global.tensor.numel());
    EXPECT_EQ(same.num_different, 0) << global.name;
    EXPECT_FALSE(same.first) << global.name;
  }
}

TEST(CompareValues, SaysWhereFirstAndByHowMuch) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor a = at::ones({4, 3, 5}, dtype) * 2;
    at::Tensor b = a.clone();
    b[1][2][4] = 2.5;
    b[3][0][0] = -2;
    const ValueDiff diff = compare_values(a, b);
    EXPECT_EQ(diff.num_different, 2);
    EXPECT_EQ(diff.num_beyond, 2);
    EXPECT_EQ(diff.max_absolute, 4);
    EXPECT_EQ(diff.max_relative, 4 / 2.5);
    ASSERT_TRUE(diff.first);
    EXPECT_THAT(diff.first->index, ElementsAre(1, 2, 4));
    EXPECT_EQ(diff.first->a, "2");
    EXPECT_EQ(diff.first->b, "2.5");
    ASSERT_TRUE(diff.cosine);
    const double product = 58 * 4 + 2 * 2.5 - 4, squares = 59 * 4 + 2.5 * 2.5;
    EXPECT_NEAR(*diff.cosine, product / std::sqrt(60 * 4 * squares), 1e-12);
  }
}

TEST(CompareValues, CountsRepresentableValues) {
  const auto ulp = [](double a, double b, at::ScalarType dtype) {
    return *compare_values(at::full({}, a, dtype), at::full({}, b, dtype)).max_ulp;
  };
  EXPECT_EQ(ulp(1, 1 + std::ldexp(1, -23), at::kFloat), 1);
  EXPECT_EQ(ulp(1, 1 + 3 * std::ldexp(1, -7), at::kBFloat16), 3);
  EXPECT_EQ(ulp(1, 1 - std::ldexp(1, -11), at::kHalf), 1);
  EXPECT_EQ(ulp(0, -0.0, at::kFloat), 0);
  EXPECT_EQ(ulp(std::ldexp(1, -149), -std::ldexp(1, -149), at::kFloat), 2);
  EXPECT_EQ(ulp(1, 2, at::kDouble), uint64_t{1} << 52);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(ulp(-most, most, at::kDouble), 2 * ((uint64_t{0x7ff} << 52) - 1));
}

TEST(CompareValues, TellsZerosAndNansApartByTheirBits) {
  const at::Tensor zero = at::zeros({2}, at::kFloat);
  const ValueDiff zeros = compare_values(zero, -zero);
  EXPECT_EQ(zeros.num_beyond, 2);
  EXPECT_EQ(zeros.max_absolute, 0);
  EXPECT_FALSE(zeros.cosine);
  EXPECT_EQ(zeros.first->b, "-0");
  EXPECT_EQ(compare_values(zero, -zero, 1e-9).num_beyond, 0);

  const at::Tensor nan = at::full({2}, kNan, at::kFloat);
  const ValueDiff nans = compare_values(nan, (nan.view(at::kInt) | 1).view(at::kFloat));
  EXPECT_EQ(nans.num_not_finite, 2);
  EXPECT_EQ(compare_values(nan, nan.clone()).num_different, 0);
}

TEST(CompareValues, NeverAllowsValuesThatAreNotFinite) {
  const at::Tensor a = at::tensor({1.0, kInfinity, kNan, 2.0}, at::kDouble);
  const at::Tensor b = at::tensor({kNan, 3.0, kNan, 2.5}, at::kDouble);
  const ValueDiff diff = compare_values(a, b, 10);
  EXPECT_EQ(diff.num_different, 3);
  EXPECT_EQ(diff.num_not_finite, 2);
  EXPECT_EQ(diff.num_beyond, 2);
  EXPECT_EQ(diff.max_absolute, 0.5);
  EXPECT_EQ(diff.max_relative, 0.5 / 3);
  EXPECT_THAT(diff.first->index, ElementsAre(0));
  EXPECT_EQ(diff.first->b, "nan");
}

TEST(CompareValues, ToleranceIsRelativeToTheLargestValue) {
  const at::Tensor a = at::tensor({8.0, 1e-9}, at::kDouble);
  const at::Tensor b = at::tensor({8.0, 0.5}, at::kDouble);
  EXPECT_EQ(compare_values(a, b, 0.0626).num_beyond, 0);
  const ValueDiff diff = compare_values(a, b, 0.0624);
  EXPECT_EQ(diff.num_beyond, 1);
  EXPECT_THAT(diff.first->index, ElementsAre(1));
  EXPECT_EQ(diff.first->a, "1e-09");
}

TEST(CompareValues, ComparesIntegersWithoutOverflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const ValueDiff diff = compare_values(at::full({2}, most), at::full({2}, -most - 1));
  EXPECT_EQ(diff.max_absolute, std::ldexp(1, 64));
  EXPECT_FALSE(diff.max_ulp);
  EXPECT_EQ(diff.first->b, "-9223372036854775808");
  const ValueDiff flags = compare_values(at::zeros({3}, at::kBool), at::ones({3}, at::kBool));
  EXPECT_EQ(flags.num_different, 3);
  EXPECT_EQ(flags.first->b, "true");
  EXPECT_EQ(compare_values(at::zeros({1}, at::kByte), at::full({1}, 200, at::kByte)).max_absolute,
            200);
}

TEST(CompareValues, RefusesOtherForms) {
  const at::Tensor a = at::zeros({2, 3}), b = at::zeros({2, 3}, at::kHalf);
  EXPECT_THAT(message_of<ConfigError>([&] { compare_values(a, b); }),
              AllOf(HasSubstr("F32 [2, 3]"), HasSubstr("F16 [2, 3]")));
  EXPECT_THAT(message_of<ConfigError>([&] { compare_values(a, at::zeros({6})); }),
              HasSubstr("F32 [6]"));
}

TEST(Diff, OfOneModelAtTwoLayoutsIsEmpty) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  save_all(root / "b", 1, mixed_tensors(3), 3);
  const SavedTensors a(root / "a" / "step-000001"), b(root / "b" / "step-000001");
  int64_t last = 0;
  const Diff same = diff(a, b, {.on_progress = [&](int64_t done, int64_t) { last = done; }});
  EXPECT_TRUE(same.is_same());
  EXPECT_TRUE(same.tensors.empty());
  EXPECT_EQ(same.num_compared, 7);
  EXPECT_EQ(same.num_bytes, num_bytes(a));
  EXPECT_EQ(last, num_bytes(a));
}

TEST(Diff, ListsNamesFormsAndValues) {
  const Held a({{"both", at::ones({2})},
                {"form", at::ones({2})},
                {"mine", at::ones({1})},
                {"shape", at::ones({2})},
                {"value", at::ones({2})}});
  const Held b({{"both", at::ones({2})},
                {"form", at::ones({2}, at::kDouble)},
                {"shape", at::ones({1, 2})},
                {"theirs", at::ones({1})},
                {"value", at::ones({2}) * 1.5}});
  const Diff all = diff(a, b);
  EXPECT_FALSE(all.is_same());
  EXPECT_THAT(all.only_in_a, ElementsAre("mine"));
  EXPECT_THAT(all.only_in_b, ElementsAre("theirs"));
  ASSERT_EQ(all.tensors.size(), 3);
  EXPECT_EQ(all.num_compared, 4);
  EXPECT_EQ(all.num_beyond(), 3);
  EXPECT_FALSE(all.tensors[0].same_form());
  EXPECT_FALSE(all.tensors[1].same_form());
  EXPECT_EQ(all.tensors[2].values.max_absolute, 0.5);

  const Diff some = diff(a, b, {.tolerance = 0.4, .wanted = [](const std::string& name) {
                                  return name == "both" || name == "value";
                                }});
  EXPECT_TRUE(some.is_same());
  ASSERT_EQ(some.tensors.size(), 1);  // within the tolerance
  EXPECT_FALSE(some.tensors[0].is_beyond());
  EXPECT_FALSE(
      diff(a, b, {.wanted = [](const std::string& name) { return name == "mine"; }}).is_same());
}

// 40 MiB, so three parts; the whole tensors are the reference.
TEST(Diff, OfTensorsInPartsIsThatOfTheWholeOnes) {
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kInt}) {
    const int64_t rows = (int64_t{40} << 20) / static_cast<int64_t>(c10::elementSize(dtype)) / 64;
    const at::Tensor a =
        at::arange(rows * 64, at::kDouble).view({rows, 64}).remainder(997).to(dtype);
    at::Tensor b = a.clone();
    const auto expect = [&](double tolerance) {
      int64_t done = 0;
      const Diff found = diff(Held({{"w", a}}), Held({{"w", b}}),
                              {.tolerance = tolerance, .on_progress = [&](int64_t now, int64_t) {
                                 EXPECT_GT(now, done);
                                 done = now;
                               }});
      EXPECT_EQ(done, static_cast<int64_t>(a.nbytes()));
      const ValueDiff values =
          found.tensors.empty() ? ValueDiff{.num_elements = a.numel()} : found.tensors[0].values;
      EXPECT_EQ(values, compare_values(a, b, tolerance));
      return values;
    };
    EXPECT_EQ(expect(0).num_different, 0);
    b[rows - 1][63] = 500;  // in the last part
    EXPECT_EQ(expect(0).num_different, 1);
    b[rows / 2].add_(2);
    b[7][3] = -4000;  // the largest, which the others are relative to
    EXPECT_EQ(expect(0).first->index, (std::vector<int64_t>{7, 3}));
    EXPECT_EQ(expect(1e-2).num_beyond, 2);
  }
}

TEST(Diff, RefusesAChoiceOfNothing) {
  const Held a({{"w", at::ones({2})}});
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { diff(a, a, {.wanted = [](const std::string&) { return false; }}); }),
              HasSubstr("none of the 1 names"));
  EXPECT_TRUE(diff(Held({}), Held({})).is_same());
}

}  // namespace
}  // namespace trireme::checkpoint
