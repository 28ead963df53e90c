#include "trireme/parallel/embedding/sums/sample_tree.h"

#include <cmath>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using harness::Draw;
using Begins = std::vector<int64_t>;

TEST(SampleTree, ARangeFallsIntoItsLargestAlignedPowersOfTwo) {
  EXPECT_EQ(subtrees_of(0, 0), Begins{});
  EXPECT_EQ(subtrees_of(5, 5), Begins{});
  EXPECT_EQ(subtrees_of(0, 1024), Begins{0});
  EXPECT_EQ(subtrees_of(1024, 2048), Begins{1024});
  EXPECT_EQ(subtrees_of(0, 7), (Begins{0, 4, 6}));
  EXPECT_EQ(subtrees_of(3, 12), (Begins{3, 4, 8}));
  EXPECT_EQ(subtrees_of(683, 1366),
            (Begins{683, 684, 688, 704, 768, 1024, 1280, 1344, 1360, 1364}));
  EXPECT_EQ(subtrees_of(kMaxSamples - 1, kMaxSamples), Begins{kMaxSamples - 1});
  EXPECT_LE(std::ssize(subtrees_of(1, kMaxSamples - 1)), kMaxSubtrees);
  EXPECT_THROW(subtrees_of(0, kMaxSamples + 1), ConfigError);
}

// The tree as its definition says: the sum of [begin, begin + length), halves first.
std::optional<double> sum_by_halves(const std::map<int64_t, double>& leaves, int64_t begin,
                                    int64_t length) {
  const auto first = leaves.lower_bound(begin);
  if (first == leaves.end() || first->first >= begin + length) return {};
  if (length == 1) return first->second;
  const auto left = sum_by_halves(leaves, begin, length / 2);
  const auto right = sum_by_halves(leaves, begin + length / 2, length / 2);
  if (left && right) return *left + *right;
  return left ? left : right;
}

struct Drawn {
  std::vector<double> rows;
  std::vector<Term<double>> terms;
  std::map<int64_t, double> leaves;
};
Begins all_of(const std::vector<Term<double>>& terms) { return {0, std::ssize(terms)}; }

// A quarter of the samples, some of them with several terms.
Drawn draw_terms(Draw& draw, int64_t num_samples) {
  Drawn drawn;
  std::vector<int64_t> samples;
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    if (draw.below(4) == 0) samples.insert(samples.end(), 1 + draw.below(size_t{3}), sample);
  }
  if (samples.empty()) samples.push_back(draw.below(num_samples));
  for (size_t i = 0; i < samples.size(); ++i) {
    drawn.rows.push_back(std::sin(static_cast<double>(draw.below(100000))));
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const double weight = 0.3 * static_cast<double>(i % 5) + 0.1;
    drawn.terms.push_back({&drawn.rows[i], weight, samples[i]});
    const double term = weight * drawn.rows[i];
    const auto [leaf, is_new] = drawn.leaves.emplace(samples[i], term);
    if (!is_new) leaf->second += term;
  }
  return drawn;
}

TEST(SampleTree, SumsByHalves) {
  Draw draw(1);
  double scratch[kMaxSubtrees];
  for (int round = 0; round < 300; ++round) {
    const int64_t num_samples = round < 290 ? 64 : 1 << 14;
    const Drawn drawn = draw_terms(draw, num_samples);
    double sum = 0;
    sum_up_tree(drawn.terms, all_of(drawn.terms), 0, 1, &sum, scratch);
    EXPECT_EQ(sum, sum_by_halves(drawn.leaves, 0, num_samples));
  }
}

// Ranks of any sizes sum their subtrees first: not one bit changes.
TEST(SampleTree, SumsOfSubtreesAreTermsOfTheWhole) {
  Draw draw(2);
  double scratch[kMaxSubtrees];
  for (int round = 0; round < 300; ++round) {
    const Drawn drawn = draw_terms(draw, 64);
    std::vector<double> sums;
    sums.reserve(256);
    std::vector<Term<double>> joined;
    for (int64_t begin = 0; begin < 64;) {
      const int64_t end = std::min<int64_t>(64, begin + 1 + draw.below<int64_t>(30));
      Begins begins = subtrees_of(begin, end);
      begins.push_back(end);
      for (size_t k = 0; k + 1 < begins.size(); ++k) {
        std::vector<Term<double>> inside;
        for (const Term<double>& term : drawn.terms) {
          if (term.sample >= begins[k] && term.sample < begins[k + 1]) inside.push_back(term);
        }
        if (inside.empty()) continue;
        sums.push_back(0);
        sum_up_tree(inside, all_of(inside), 0, 1, &sums.back(), scratch);
        joined.push_back({&sums.back(), 1, begins[k]});
      }
      begin = end;
    }
    double sum = 0, expected = 0;
    sum_up_tree(joined, all_of(joined), 0, 1, &sum, scratch);
    sum_up_tree(drawn.terms, all_of(drawn.terms), 0, 1, &expected, scratch);
    EXPECT_EQ(sum, expected);
  }
}

TEST(SampleTree, SumsTheColumnsItIsAskedForOfEachRow) {
  const std::vector<double> rows{1, 2, 3, 10, 20, 30};
  const std::vector<Term<double>> terms{
      {rows.data(), 1, 4}, {rows.data() + 3, 2, 9}, {rows.data(), 5, 2}};
  double sums[4], scratch[2 * kMaxSubtrees];
  sum_up_tree(terms, Begins{0, 2, 3}, 1, 2, sums, scratch);
  EXPECT_EQ(std::vector<double>(sums, sums + 4), (std::vector<double>{42, 63, 10, 15}));
}

}  // namespace
}  // namespace trireme::parallel
