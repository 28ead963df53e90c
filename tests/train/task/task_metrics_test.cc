#include "trireme/train/task/task_metrics.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> numbers(const at::Tensor& state) {
  EXPECT_EQ(state.scalar_type(), at::kDouble);
  const at::Tensor flat = state.contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// The labels that sort before `label` by (logit, class) are fewer than k.
bool is_right(const std::vector<double>& logits, int64_t label, int64_t k) {
  int64_t place = 0;
  const auto own = logits[static_cast<size_t>(label)];
  for (int64_t c = 0; c < std::ssize(logits); ++c) {
    const double logit = logits[static_cast<size_t>(c)];
    if (logit > own || (logit == own && c < label)) ++place;
  }
  return place < k;
}

std::vector<double> reference_top_k(const at::Tensor& logits_BC, const at::Tensor& labels_B,
                                    int64_t k) {
  double right = 0;
  for (int64_t b = 0; b < labels_B.size(0); ++b) {
    if (is_right(numbers(logits_BC[b].to(at::kDouble)), labels_B[b].item<int64_t>(), k)) ++right;
  }
  return {right, static_cast<double>(labels_B.size(0))};
}

// Over all pairs, one by one.
double exact_auc(const at::Tensor& scores_B, const at::Tensor& labels_B) {
  double right = 0, pairs = 0;
  const std::vector<double> scores = numbers(scores_B.to(at::kDouble));
  const std::vector<double> labels = numbers(labels_B.to(at::kDouble));
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] == 0 || labels[j] != 0) continue;
      ++pairs;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return right / pairs;
}

struct Samples {
  at::Tensor logits_BC, labels_B;  // of classes
  at::Tensor scores_B, clicks_B;   // binary
};

Samples draw(int64_t size, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  Samples samples;
  // Few values, so that some are equal.
  samples.logits_BC = at::randint(-3, 4, {size, 9}, at::kFloat);
  samples.labels_B = at::randint(0, 9, {size}, at::kLong);
  samples.clicks_B = at::rand({size}).lt(0.3).to(at::kFloat);
  samples.scores_B = at::randn({size}) * 3 + samples.clicks_B * 2;
  return samples;
}

TEST(TaskMetrics, AccuracyAndTopKAreThoseOfAPlainCount) {
  for (const int64_t size : {1, 2, 257}) {
    const Samples samples = draw(size, 1);
    for (const int64_t k : {1, 2, 5, 9, 20}) {
      EXPECT_EQ(numbers(top_k_accuracy_state(samples.logits_BC, samples.labels_B, k)),
                reference_top_k(samples.logits_BC, samples.labels_B, k));
    }
    const at::Tensor distinct = samples.logits_BC + at::rand_like(samples.logits_BC) * 0.5;
    EXPECT_EQ(numbers(accuracy_state(distinct, samples.labels_B)),
              reference_top_k(distinct, samples.labels_B, 1));
  }
  EXPECT_THROW(top_k_accuracy_state(at::ones({1, 2}), at::zeros({1}, at::kLong), 0), ConfigError);
}

TEST(TaskMetrics, ANanIsNeverRight) {
  const at::Tensor labels = at::tensor({0, 1}, at::kLong);
  const at::Tensor logits = at::tensor({kNan, 1.0, 0.0, kNan, 2.0, 0.0}).view({2, 3});
  EXPECT_EQ(numbers(top_k_accuracy_state(logits, labels, 1)), (std::vector<double>{0, 2}));
  EXPECT_EQ(numbers(top_k_accuracy_state(logits, labels, 3)), (std::vector<double>{1, 2}));
}

TEST(TaskMetrics, AucIsWithinItsBoundOfTheExactOne) {
  for (const int64_t size : {2, 30, 400}) {
    for (int64_t seed = 0; seed < 20; ++seed) {
      const Samples samples = draw(size, seed);
      const auto state = numbers(auc_state(samples.scores_B, samples.clicks_B));
      const double exact = exact_auc(samples.scores_B, samples.clicks_B);
      EXPECT_EQ(std::isnan(auc(state)), std::isnan(exact));
      if (std::isnan(exact)) continue;
      EXPECT_LE(std::abs(auc(state) - exact), auc_error(state) + 1e-15);
    }
  }
  // Spread over 6 units, 192 bins, it is a small bound.
  const Samples many = draw(400, 1);
  EXPECT_LT(auc_error(numbers(auc_state(many.scores_B, many.clicks_B))), 0.005);
}

TEST(TaskMetrics, AucIsExactForScoresInBinsOfTheirOwn) {
  at::manual_seed(5);
  const at::Tensor scores = at::randint(-300, 300, {500}, at::kLong).to(at::kFloat) / 32;
  const at::Tensor clicks = at::rand({500}).lt(0.5);
  const auto state = numbers(auc_state(scores, clicks));
  EXPECT_NEAR(auc(state), exact_auc(scores, clicks), 1e-15);
}

TEST(TaskMetrics, NoSmallerBoundOnAucHolds) {
  const at::Tensor clicks = at::tensor({0, 1}, at::kLong);
  for (const auto& [scores, exact] :
       {std::pair{at::tensor({0.001, 0.002}), 1.0}, std::pair{at::tensor({0.002, 0.001}), 0.0}}) {
    const auto state = numbers(auc_state(scores, clicks));
    EXPECT_EQ(std::abs(auc(state) - exact), auc_error(state));
    EXPECT_EQ(auc_error(state), 0.5);
  }
}

TEST(TaskMetrics, ScoresBeyondTheBinsAreInTheOuterOnes) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor scores = at::tensor({-infinity, -1e30, -16.0, 15.999, 16.0, 1e30, infinity});
  const auto state = numbers(auc_state(scores, at::tensor({1, 0, 0, 0, 0, 1, 1}, at::kLong)));
  EXPECT_EQ(state.front(), 2);
  EXPECT_EQ(state[kAucBins - 1], 2);
  EXPECT_EQ(state[kAucBins], 1);
  EXPECT_EQ(state.back(), 2);
  EXPECT_TRUE(std::isnan(auc(numbers(auc_state(at::tensor({0.0, kNan}), at::tensor({0, 1}))))));
}

TEST(TaskMetrics, OfNothingTheyAreUndefined) {
  const std::vector<double> none = {0, 0};
  EXPECT_TRUE(std::isnan(mean_of(none)));
  EXPECT_TRUE(std::isnan(perplexity(none)));
  const Samples empty = draw(0, 1);
  EXPECT_EQ(numbers(accuracy_state(empty.logits_BC, empty.labels_B)), none);
  EXPECT_EQ(numbers(top_k_accuracy_state(empty.logits_BC, empty.labels_B)), none);
  const auto state = numbers(auc_state(empty.scores_B, empty.clicks_B));
  EXPECT_EQ(state, std::vector<double>(static_cast<size_t>(kAucStateSize)));
  EXPECT_TRUE(std::isnan(auc(state)));
  EXPECT_TRUE(std::isnan(auc_error(state)));
  // Of one class alone too.
  EXPECT_TRUE(std::isnan(auc(numbers(auc_state(at::rand({3}), at::ones({3}))))));
}

TEST(TaskMetrics, PerplexityIsTheExponentialOfTheMean) {
  // A model that gives each of 7 tokens the same probability.
  EXPECT_NEAR(perplexity(std::vector<double>{12 * std::log(7.0), 12}), 7, 1e-14);
  EXPECT_EQ(mean_of(std::vector<double>{3, 4}), 0.75);
}

// Rank r has r parts of the samples, so rank 0 has none.
TEST(TaskMetrics, StatesOfUnevenBatchesOnRanksAddUpToThoseOfAllSamples) {
  const Samples all = draw(120, 7);
  const auto state_of = [](const Samples& samples) {
    return at::cat({accuracy_state(samples.logits_BC, samples.labels_B),
                    top_k_accuracy_state(samples.logits_BC, samples.labels_B),
                    auc_state(samples.scores_B, samples.clicks_B)});
  };
  const std::vector<double> expected = numbers(state_of(all));
  for (const int size : {1, 2, 3, 4}) {
    const int64_t num_parts = std::max<int64_t>(1, size * (size - 1) / 2);
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const int64_t rank = world.rank();
      const int64_t first = size == 1 ? 0 : rank * (rank - 1) / 2;
      const int64_t last = size == 1 ? 1 : first + rank;
      const int64_t begin = 120 * first / num_parts, end = 120 * last / num_parts;
      const auto part = [&](const at::Tensor& tensor) { return tensor.slice(0, begin, end); };
      at::Tensor state = state_of(
          {part(all.logits_BC), part(all.labels_B), part(all.scores_B), part(all.clicks_B)});
      world.all_reduce(state)->wait();
      EXPECT_EQ(numbers(state), expected) << world.rank() << " of " << size;
    });
  }
}

}  // namespace
}  // namespace trireme::train
