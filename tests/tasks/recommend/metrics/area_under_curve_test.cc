#include "trireme/tasks/recommend/metrics/click_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

struct Samples {
  std::vector<float> scores;
  std::vector<int64_t> labels;

  at::Tensor score_tensor() const { return at::tensor(scores, at::kFloat); }
  at::Tensor label_tensor() const { return at::tensor(labels, at::kLong); }
  Samples part(size_t begin, size_t end) const {
    const auto b = static_cast<std::ptrdiff_t>(begin);
    const auto e = static_cast<std::ptrdiff_t>(end);
    return {{scores.begin() + b, scores.begin() + e}, {labels.begin() + b, labels.begin() + e}};
  }
};

// Every pair, one by one.
double area_by_pairs(const Samples& samples) {
  int64_t twice_wins = 0;
  int64_t pairs = 0;
  for (size_t i = 0; i < samples.scores.size(); ++i) {
    for (size_t j = 0; j < samples.scores.size(); ++j) {
      if (samples.labels[i] != 1 || samples.labels[j] != 0) continue;
      ++pairs;
      twice_wins += samples.scores[i] > samples.scores[j]    ? 2
                    : samples.scores[i] == samples.scores[j] ? 1
                                                             : 0;
    }
  }
  return static_cast<double>(twice_wins) / static_cast<double>(2 * pairs);
}

// At most `levels` different scores of both signs.
Samples draw_samples(harness::Draw& draw, int64_t count, int64_t levels) {
  Samples samples;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t level = draw.below(levels) - levels / 2;
    samples.scores.push_back(static_cast<float>(level) * 0.37F);
    samples.labels.push_back(draw.below(3) == 0 ? 1 : 0);
  }
  return samples;
}

void add(AreaUnderCurve& area, const Samples& samples) {
  area.add(samples.score_tensor(), samples.label_tensor());
}

// The bits of a result, of which a NaN has one.
uint64_t bits(double value) { return std::bit_cast<uint64_t>(std::isnan(value) ? NAN : value); }

TEST(AreaUnderCurve, IsTheShareOfRightPairsWithTiesAtHalf) {
  harness::Draw draw(1);
  for (int round = 0; round < 200; ++round) {
    const Samples samples = draw_samples(draw, draw.below(60), 1 + draw.below(40));
    AreaUnderCurve area;
    add(area, samples);
    EXPECT_EQ(bits(area.local_area()), bits(area_by_pairs(samples))) << round;
  }
}

TEST(AreaUnderCurve, MergesToTheSameBitsInAnyParts) {
  harness::Draw draw(2);
  const Samples samples = draw_samples(draw, 1000, 300);
  AreaUnderCurve whole;
  add(whole, samples);
  AreaUnderCurve parts;
  for (size_t begin = 0; begin < 1000; begin += 125) {
    AreaUnderCurve part;
    add(part, samples.part(begin, begin + 50));
    part.num_distinct();  // settles half of it
    add(part, samples.part(begin + 50, begin + 125));
    parts.merge(part);
  }
  EXPECT_EQ(bits(parts.local_area()), bits(area_by_pairs(samples)));
  EXPECT_EQ(bits(whole.local_area()), bits(parts.local_area()));
  EXPECT_EQ(parts.num_positives() + parts.num_negatives(), 1000);
  EXPECT_EQ(parts.num_distinct(), whole.num_distinct());
  parts.merge(parts);
  EXPECT_EQ(parts.num_positives(), 2 * whole.num_positives());
  EXPECT_EQ(bits(parts.local_area()), bits(whole.local_area()));
}

TEST(AreaUnderCurve, StaysExactWhenItSettlesOnItsWay) {
  harness::Draw draw(3);
  AreaUnderCurve area;
  int64_t positives_by_level[64] = {};
  int64_t negatives_by_level[64] = {};
  for (int batch = 0; batch < 10; ++batch) {
    Samples samples;
    for (int i = 0; i < 30000; ++i) {
      const int64_t level = draw.below(64);
      const int64_t label = draw.below(64) < level ? 1 : 0;
      samples.scores.push_back(static_cast<float>(level) / 64);
      samples.labels.push_back(label);
      ++(label == 1 ? positives_by_level : negatives_by_level)[level];
    }
    add(area, samples);
  }
  double twice_wins = 0;
  double below = 0;
  for (int level = 0; level < 64; ++level) {
    const auto negatives = static_cast<double>(negatives_by_level[level]);
    twice_wins += static_cast<double>(positives_by_level[level]) * (2 * below + negatives);
    below += negatives;
  }
  const auto pairs = static_cast<double>(area.num_positives()) * below;
  EXPECT_EQ(area.local_area(), twice_wins / (2 * pairs));
  EXPECT_EQ(area.num_distinct(), 64);
}

TEST(AreaUnderCurve, IsUndefinedWithoutBothClassesOrWithNaN) {
  AreaUnderCurve area;
  EXPECT_TRUE(std::isnan(area.local_area()));
  add(area, {{0.5F, 0.25F}, {1, 1}});
  EXPECT_TRUE(std::isnan(area.local_area()));
  add(area, {{0.4F}, {0}});
  EXPECT_EQ(area.local_area(), 0.5);
  add(area, {{NAN}, {0}});
  EXPECT_TRUE(std::isnan(area.local_area()));
  area.clear();
  EXPECT_EQ(area.num_positives(), 0);
}

TEST(AreaUnderCurve, OrdersInfinitiesAndTakesBothZerosForOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Samples samples = {{-kInfinity, -1, -0.0F, 0.0F, 1e-40F, kInfinity}, {0, 1, 1, 0, 0, 1}};
  AreaUnderCurve area;
  add(area, samples);
  EXPECT_EQ(area.local_area(), area_by_pairs(samples));
  EXPECT_EQ(area.num_distinct(), 5);
}

TEST(AreaUnderCurve, TakesAnyShapeAndPrecision) {
  AreaUnderCurve area;
  const at::Tensor scores = at::tensor({0.5, 0.25, 0.75, 0.0}, at::kDouble).view({2, 2});
  area.add(scores.requires_grad_(), at::tensor({1.0F, 0.0F, 1.0F, 1.0F}).view({4, 1}));
  area.add(scores.to(at::kBFloat16), at::tensor({1, 0, 1, 1}).to(at::kBool));
  area.add(at::empty({0}), at::empty({0}));
  EXPECT_EQ(area.local_area(), 2.0 / 3);
}

TEST(AreaUnderCurve, RefusesOtherLabels) {
  AreaUnderCurve area;
  EXPECT_EQ(harness::message_of<ConfigError>([&] {
              add(area, {{0.5F, 0.1F}, {1, 2}});
            }),
            "label 2 of sample 1; expected 0 or 1");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { area.add(at::zeros(3), at::zeros(2)); }),
            "3 scores and 2 labels; expected as many");
  EXPECT_EQ(area.num_negatives(), 0);
}

TEST(AreaUnderCurve, HasTheSameBitsOnAnyNumberOfRanks) {
  for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    harness::run_ranks(num_ranks, [](comm::Communicator& group) {
      harness::Draw draw(7);  // the same on every rank
      for (int round = 0; round < 40; ++round) {
        const int64_t count = draw.below(4) == 0 ? draw.below(4) : draw.below(2000);
        const Samples samples = draw_samples(draw, count, 1 + draw.below(3000));
        // Uneven parts; some are empty.
        std::vector<size_t> ends(static_cast<size_t>(group.size()) - 1);
        for (size_t& end : ends) end = static_cast<size_t>(draw.below(count + 1));
        std::ranges::sort(ends);
        ends.insert(ends.begin(), 0);
        ends.push_back(static_cast<size_t>(count));
        const auto rank = static_cast<size_t>(group.rank());
        AreaUnderCurve area;
        add(area, samples.part(ends[rank], ends[rank + 1]));
        const double all = area.gather_area(group);
        EXPECT_EQ(bits(all), bits(area_by_pairs(samples))) << round;
        EXPECT_EQ(bits(area.gather_area(group)), bits(all)) << "the samples have changed";
      }
    });
  }
}

TEST(AreaUnderCurve, SendsTwentyBytesForEachDistinctScoreOfAnotherRank) {
  harness::run_ranks(3, [](comm::Communicator& inner) {
    harness::CountingCommunicator group(inner);
    AreaUnderCurve area;  // rank r has only scores of its range, and then all
    Samples samples;
    for (int i = 0; i < 900; ++i) {
      samples.scores.push_back(static_cast<float>(group.rank() * 900 + i));
      samples.labels.push_back(i % 2);
    }
    add(area, samples);
    area.gather_area(group);
    const int64_t others = group.size() - 1;
    EXPECT_EQ(group.ledger().of(group.name(), "all_gather").bytes, others * (4096 + 40));
    const int64_t sent = group.sent_by_all_to_all() - others * 8;
    EXPECT_EQ(sent % 20, 0);
    EXPECT_LE(sent, 20 * 900 / 100) << "ranges follow the scores";
  });
}

TEST(AreaUnderCurve, ANaNOnOneRankIsSeenOnAll) {
  harness::run_ranks(3, [](comm::Communicator& group) {
    AreaUnderCurve area;
    add(area, {{0.5F, 0.1F}, {1, 0}});
    EXPECT_EQ(area.gather_area(group), 1);
    if (group.rank() == 1) add(area, {{NAN}, {1}});
    EXPECT_TRUE(std::isnan(area.gather_area(group)));
  });
}

}  // namespace
}  // namespace trireme::tasks
