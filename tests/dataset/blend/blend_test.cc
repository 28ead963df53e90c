#include "trireme/dataset/blend/blend.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"

namespace trireme::dataset {
namespace {

Blend blend_of(const std::vector<int64_t>& weights, int64_t size = 100, bool repeats = true) {
  std::vector<BlendPart> parts;
  for (const int64_t weight : weights) parts.push_back({.weight = weight, .size = size});
  return Blend(std::move(parts), repeats);
}

std::vector<size_t> parts_of(const Blend& blend, int64_t num_samples) {
  std::vector<size_t> parts;
  for (int64_t n = 0; n < num_samples; ++n) parts.push_back(blend.place(n).part);
  return parts;
}

std::vector<std::vector<int64_t>> all_weights() {
  std::vector<std::vector<int64_t>> all = {{1},
                                           {5},
                                           {1, 1},
                                           {7, 3},
                                           {1, 999'999},
                                           {333'333, 666'667},
                                           {1, 1, 1},
                                           {2, 3, 5},
                                           {90, 5, 3, 2},
                                           {1, 1, 1, 997},
                                           {500'000, 1, 499'999},
                                           {6, 10, 15, 1},
                                           {31, 29, 23, 19, 17, 13, 11, 7, 5, 3, 2}};
  all.emplace_back(Blend::kMostParts, 1);
  all.emplace_back(Blend::kMostParts, Blend::kLongestPeriod / int64_t{Blend::kMostParts});
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const RandomKey key = random_key(draw, "weights");
    std::vector<int64_t> weights(2 + draw % 9);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + random_bits(key, i)[0] % 3000;
    all.push_back(std::move(weights));
  }
  return all;
}

// A million samples, and each of their beginnings.
TEST(Blend, EverySourceIsWithinOneSampleOfItsShare) {
  for (const std::vector<int64_t>& weights : all_weights()) {
    const Blend blend = blend_of(weights);
    const int64_t period = std::reduce(weights.begin(), weights.end());
    std::vector<int64_t> counts(weights.size());
    for (int64_t n = 0; n < 1'000'000; ++n) {
      const Blend::Place place = blend.place(n);
      ASSERT_EQ(place.number, counts[place.part]) << n;
      ++counts[place.part];
      // Every other source falls behind, which the next check of them sees; all at the end of one
      // period, and of 64 samples.
      const bool checks_all = n % 64 == 0 || (n + 1) % period == 0;
      for (size_t part = 0; part < counts.size(); ++part) {
        if (part != place.part && !checks_all) continue;
        const int64_t off = counts[part] * period - (n + 1) * weights[part];
        ASSERT_LT(std::abs(off), period) << "part " << part << " of " << n + 1;
      }
    }
    for (size_t part = 0; part < counts.size(); ++part) {
      EXPECT_EQ(blend.count(part, 1'000'000), counts[part]);
      EXPECT_NEAR(static_cast<double>(counts[part]) / 1e6, blend.share(part), 1e-6);
    }
  }
}

TEST(Blend, IsTheSameOnEveryMachine) {
  EXPECT_EQ(parts_of(blend_of({7, 3}), 10), (std::vector<size_t>{0, 0, 1, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(parts_of(blend_of({1, 1, 2}), 8), (std::vector<size_t>{2, 0, 1, 2, 2, 0, 1, 2}));
  EXPECT_EQ(parts_of(blend_of({3}), 3), (std::vector<size_t>{0, 0, 0}));
}

// What a resume relies on: any sample is found without those before it.
TEST(Blend, PlacesCountsAndPositionsAgreeFarOut) {
  for (const std::vector<int64_t>& weights : all_weights()) {
    const Blend blend = blend_of(weights);
    const int64_t period = std::reduce(weights.begin(), weights.end());
    for (const int64_t far : {int64_t{0}, period * 12'345, int64_t{1'000'000'000'000'000}}) {
      for (int64_t n = far; n < far + 300; ++n) {
        const Blend::Place place = blend.place(n);
        ASSERT_EQ(place, (Blend::Place{place.part, blend.count(place.part, n)}));
        ASSERT_EQ(blend.position(place), n);
        int64_t sum = 0;
        for (size_t part = 0; part < weights.size(); ++part) sum += blend.count(part, n);
        ASSERT_EQ(sum, n);
        ASSERT_EQ(place.part, blend.place(n % period).part);
      }
    }
  }
}

TEST(Blend, SaysHowFarItsSourcesGo) {
  // Places 0 to 9: a a b a a b a a a b.
  std::vector<BlendPart> parts = {{.weight = 7, .size = 4}, {.weight = 3, .size = 3}};
  EXPECT_EQ(Blend(parts, false).fresh().samples, 6);  // the next is the fifth of the first
  EXPECT_EQ(Blend(parts, false).fresh().part, 0U);
  parts[0].size = 700;
  EXPECT_EQ(Blend(parts, false).fresh().samples, 12);
  EXPECT_EQ(Blend(parts, false).fresh().part, 1U);
  EXPECT_FALSE(Blend(parts, false).repeats());
  EXPECT_EQ(blend_of({1}, 17).fresh().samples, 17);
}

TEST(Blend, NumbersTheSamplesOfAllPartsOneAfterTheOther) {
  const Blend blend({{.weight = 1, .size = 3}, {.weight = 1, .size = 1}, {.weight = 1, .size = 2}},
                    true);
  EXPECT_EQ(blend.size(), 6);
  std::vector<Blend::Place> found;
  for (int64_t index = 0; index < 6; ++index) found.push_back(blend.at_index(index));
  EXPECT_EQ(found, (std::vector<Blend::Place>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}, {2, 1}}));
  EXPECT_EQ(blend.begin(2), 4);
  EXPECT_THROW(blend.at_index(6), InternalError);
}

TEST(Blend, RefusesWhatIsNone) {
  EXPECT_THROW(blend_of({}), InternalError);
  EXPECT_THROW(blend_of({1, 0}), InternalError);
  EXPECT_THROW(blend_of({1, -2}), InternalError);
  EXPECT_THROW(blend_of({1}, 0), InternalError);
  EXPECT_THROW(blend_of({Blend::kLongestPeriod, 1}), InternalError);
  EXPECT_THROW(blend_of(std::vector<int64_t>(Blend::kMostParts + 1, 1)), InternalError);
  EXPECT_THROW(blend_of({1}).place(-1), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
