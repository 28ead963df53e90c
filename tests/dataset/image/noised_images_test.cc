#include "trireme/dataset/image/noised_images.h"

#include <cmath>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

class PlainImages : public ImageSource {
 public:
  int64_t size() const override { return 1000; }
  ImageShape shape() const override { return {3, 4, 4}; }
  const std::vector<std::string>& classes() const override { return names_; }
  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    return {{"image", at::full({3, 4, 4}, index % 256, at::kByte)},
            {"label", at::scalar_tensor(index % 2, at::kLong)}};
  }

 private:
  std::vector<std::string> names_{"a", "b"};
};

std::unique_ptr<ImageSource> small_noised(double class_dropout = 0.25) {
  return noised(std::make_shared<PlainImages>(),
                {.timesteps = 10, .class_dropout = class_dropout, .null_class = 2});
}

int64_t number_of(const NamedTensors& sample, const char* name) {
  return find_tensor(sample, name).item<int64_t>();
}

TEST(NoisedImages, DrawsAreThoseOfTheSamplesStream) {
  const auto images = small_noised();
  const RandomKey key = random_key(3, "sample");
  const NamedTensors one = images->get(5, key), same = images->get(5, key);
  for (const char* name : {"image", "label", "timestep", "noise"})
    EXPECT_TRUE(find_tensor(one, name).equal(find_tensor(same, name))) << name;
  EXPECT_FALSE(find_tensor(one, "noise")
                   .equal(find_tensor(images->get(5, random_key(4, "sample")), "noise")));
  EXPECT_TRUE(find_tensor(one, "image").eq(5).all().item<bool>());
}

TEST(NoisedImages, EvaluationAlwaysHasTheSameDrawsAndDropsNothing) {
  const auto images = small_noised(/*class_dropout=*/1);
  for (const int64_t i : {0, 1, 2}) {
    const NamedTensors one = images->get(i, std::nullopt), again = images->get(i, std::nullopt);
    EXPECT_EQ(number_of(one, "label"), i % 2);
    EXPECT_EQ(number_of(one, "timestep"), number_of(again, "timestep"));
    EXPECT_TRUE(find_tensor(one, "noise").equal(find_tensor(again, "noise")));
  }
  EXPECT_FALSE(find_tensor(images->get(0, std::nullopt), "noise")
                   .equal(find_tensor(images->get(1, std::nullopt), "noise")));
}

// Over n draws with a probability p, a share is within 5 sqrt(p (1 - p) / n) in all but one of two
// million tests; so is a mean of normal numbers within 5 / sqrt(n).
TEST(NoisedImages, SharesAndMomentsAreThoseOfTheirDistributions) {
  const auto images = small_noised();
  constexpr int64_t kDraws = 2000;
  std::vector<int64_t> timesteps(10);
  int64_t dropped = 0;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const NamedTensors sample = images->get(1, random_key(1, std::to_string(i)));
    ++timesteps[static_cast<size_t>(number_of(sample, "timestep"))];
    const int64_t label = number_of(sample, "label");
    EXPECT_TRUE(label == 1 || label == 2);
    dropped += label == 2;
    const at::Tensor noise = find_tensor(sample, "noise").to(at::kDouble);
    EXPECT_EQ(find_tensor(sample, "noise").scalar_type(), at::kFloat);
    sum += noise.sum().item<double>();
    squares += noise.square().sum().item<double>();
  }
  const double n = kDraws;
  const auto bound = [&](double p) { return 5 * std::sqrt(p * (1 - p) / n); };
  EXPECT_NEAR(static_cast<double>(dropped) / n, 0.25, bound(0.25));
  for (const int64_t count : timesteps)
    EXPECT_NEAR(static_cast<double>(count) / n, 0.1, bound(0.1));
  const double values = n * 48;
  EXPECT_NEAR(sum / values, 0, 5 / std::sqrt(values));
  EXPECT_NEAR(squares / values, 1, 5 * std::sqrt(2 / values));
}

}  // namespace
}  // namespace trireme::dataset
