#include "trireme/model/cache/key_cache.h"

#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "trireme/parallel/context/context_attention.h"

namespace trireme::model {
namespace {

using harness::values;

constexpr int64_t kHeads = 6, kWidth = 10;

struct Case {
  int64_t kv_heads = 2;
  parallel::AttentionReach reach{};
  at::ScalarType dtype = at::kDouble;
  double tolerance = 1e-12;
};

struct Inputs {
  at::Tensor q, k, v;
};
Inputs inputs_of(const Case& one, int64_t tokens, double phase) {
  const auto make = [&](int64_t heads, double step) {
    return values({1, tokens, heads * kWidth}, step + phase).to(one.dtype);
  };
  return {make(kHeads, 0.37), make(one.kv_heads, 0.53), make(one.kv_heads, 0.71)};
}

// Texts that grow by turns in runs of any length have the attention of each whole text.
void expect_whole_attention(const Case& one) {
  KeyCache cache;
  const int layer = 0;
  constexpr int64_t kTexts = 3, kTokens = 3 * KeyCache::kPageTokens + 5;
  std::vector<Inputs> in;
  std::vector<at::Tensor> expected;
  std::vector<int64_t> numbers, done(kTexts, 0);
  std::vector<std::vector<at::Tensor>> found(kTexts);
  for (int64_t text = 0; text < kTexts; ++text) {
    in.push_back(inputs_of(one, kTokens, 0.1 * static_cast<double>(text)));
    expected.push_back(parallel::whole_attention(in.back().q, in.back().k, in.back().v, kHeads,
                                                 one.kv_heads, one.reach));
    numbers.push_back(cache.add_text());
  }
  std::mt19937_64 random(7);
  for (bool any = true; any;) {
    any = false;
    std::vector<CachedRun> runs;
    std::vector<at::Tensor> q, k, v;
    std::vector<int64_t> texts;
    for (int64_t text = 0; text < kTexts; ++text) {
      const int64_t left = kTokens - done[text];
      if (left == 0 || random() % 4 == 0) {
        any = any || left > 0;
        continue;
      }
      const int64_t count = std::min<int64_t>(left, random() % 2 == 0 ? 1 : 1 + random() % 40);
      runs.push_back(cache.extend(numbers[text], count));
      EXPECT_EQ(runs.back().first, done[text]);
      const auto part = [&](const at::Tensor& x) { return x.narrow(1, done[text], count); };
      q.push_back(part(in[text].q));
      k.push_back(part(in[text].k));
      v.push_back(part(in[text].v));
      texts.push_back(text);
      done[text] += count;
      any = true;
    }
    if (runs.empty()) continue;
    const at::Tensor out = cache.attend(&layer, at::cat(q, 1), at::cat(k, 1), at::cat(v, 1), kHeads,
                                        one.kv_heads, one.reach, runs);
    int64_t row = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      found[texts[i]].push_back(out.narrow(1, row, runs[i].count));
      row += runs[i].count;
    }
  }
  for (int64_t text = 0; text < kTexts; ++text) {
    harness::assert_close(at::cat(found[text], 1).to(at::kDouble), expected[text].to(at::kDouble),
                          one.tolerance, one.tolerance, "attention of a cached text");
  }
}

TEST(KeyCache, HasTheAttentionOfWholeTexts) {
  for (const int64_t kv_heads : {1, 2, 6}) expect_whole_attention({.kv_heads = kv_heads});
  expect_whole_attention({.reach = {.window = 4}});
  expect_whole_attention({.reach = {.window = 40}});
  expect_whole_attention({.reach = {.scores = {.scale = 0.7, .softcap = 0.4}}});
  expect_whole_attention({.reach = {.window = 9, .sinks_N = values({kHeads}, 0.9)}});
  // Biases for more distances than there are.
  for (const int64_t kv_heads : {2, 6}) {
    expect_whole_attention(
        {.kv_heads = kv_heads, .reach = {.distance_bias_NR = values({kHeads, 239}, 0.61)}});
  }
}

// Of fp32 the sums are in another order; bf16 rounds the result, and its kernel the weights too;
// fp16 has ATen's operators.
TEST(KeyCache, KnowsEveryPrecision) {
  expect_whole_attention({.dtype = at::kFloat, .tolerance = 1e-5});
  expect_whole_attention({.reach = {.window = 9, .sinks_N = values({kHeads}, 0.9).to(at::kFloat)},
                          .dtype = at::kFloat,
                          .tolerance = 1e-5});
  const at::Tensor bias_NR = values({kHeads, 239}, 0.61).to(at::kFloat);
  expect_whole_attention(
      {.reach = {.distance_bias_NR = bias_NR}, .dtype = at::kFloat, .tolerance = 1e-5});
  expect_whole_attention(
      {.reach = {.distance_bias_NR = bias_NR}, .dtype = at::kHalf, .tolerance = 2e-3});
  expect_whole_attention({.dtype = at::kBFloat16, .tolerance = 2e-2});
  expect_whole_attention({.dtype = at::kHalf, .tolerance = 2e-3});
}

TEST(KeyCache, ARunThatBeginsATextHasTheBitsOfNoCache) {
  const Inputs in = inputs_of({.dtype = at::kFloat}, 45, 0);
  KeyCache cache;
  const std::vector<CachedRun> runs = {cache.extend(cache.add_text(), 45)};
  const int layer = 0;
  EXPECT_TRUE(cache.attend(&layer, in.q, in.k, in.v, kHeads, 2, {}, runs)
                  .equal(parallel::whole_attention(in.q, in.k, in.v, kHeads, 2, {})));
}

TEST(KeyCache, TextsTakePagesAsTheyGrowAndGiveThemBack) {
  KeyCache cache;
  constexpr int64_t P = KeyCache::kPageTokens;
  const int64_t a = cache.add_text(), b = cache.add_text();
  EXPECT_EQ(cache.num_pages(), 0);
  cache.extend(a, P);
  EXPECT_EQ(cache.num_pages(), 1);
  EXPECT_EQ(cache.extend(a, 1).first, P);
  cache.extend(b, 2 * P + 1);
  EXPECT_EQ(cache.num_pages(), 5);
  EXPECT_EQ(cache.length(a), P + 1);
  cache.remove_text(b);
  EXPECT_EQ(cache.num_pages(), 2);
  const int64_t c = cache.add_text();
  EXPECT_EQ(c, b);
  EXPECT_EQ(cache.extend(c, 3 * P).first, 0);
  EXPECT_EQ(cache.num_pages(), 5);
  EXPECT_EQ(cache.bytes(), 0);
  const Inputs in = inputs_of({.dtype = at::kFloat}, 3 * P, 0);
  const int layer = 0;
  cache.attend(&layer, in.q, in.k, in.v, kHeads, 2, {}, {{.text = c, .first = 0, .count = 3 * P}});
  EXPECT_EQ(cache.bytes(), 5 * P * 2 * kWidth * 2 * 4);
}

}  // namespace
}  // namespace trireme::model
