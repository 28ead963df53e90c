#include "trireme/parallel/context/local_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

TEST(AttentionShapes, WhatDoesNotFitIsRefused) {
  const SequenceSplit split(8, 2);
  const at::Tensor x = at::zeros({1, 4, 24});
  const auto check = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t heads, int64_t kv_heads, const SequenceSplit& s) {
    check_attention_shapes(q, k, v, heads, kv_heads, s, s, 0, 2);
  };
  EXPECT_NO_THROW(check(x, x, x, 4, 4, split));
  EXPECT_NO_THROW(check(x, x.narrow(2, 0, 12), x.narrow(2, 0, 12), 4, 2, split));
  EXPECT_THROW(check(x, x, x, 3, 2, split), ConfigError);  // heads are no multiple
  EXPECT_THROW(check(x, x, x, 4, 2, split), ConfigError);  // keys too wide
  EXPECT_THROW(check(x, x, x, 5, 5, split), ConfigError);  // width is no multiple
  EXPECT_THROW(check(x, x, x, 0, 0, split), ConfigError);
  EXPECT_THROW(check(x, x, x.narrow(2, 0, 12), 4, 4, split), ConfigError);
  EXPECT_THROW(check(x, x.narrow(1, 0, 2), x.narrow(1, 0, 2), 4, 4, split), ConfigError);
  EXPECT_THROW(check(x[0], x[0], x[0], 4, 4, split), ConfigError);
  EXPECT_THROW(check(x, x.to(at::kDouble), x, 4, 4, split), ConfigError);
  EXPECT_THROW(check(x, x, x, 4, 4, SequenceSplit(12, 2)), ConfigError);  // another t
  EXPECT_THROW(check(x, x, x, 4, 4, SequenceSplit(12, 3)), ConfigError);  // another group
  // Keys of other sequences.
  const at::Tensor keys = at::zeros({1, 3, 24});
  EXPECT_NO_THROW(check_attention_shapes(x, keys, keys, 4, 4, split, SequenceSplit(6, 2), 0, 2));
  EXPECT_THROW(check_attention_shapes(x, keys, keys, 4, 4, split, split, 0, 2), ConfigError);
}

TEST(AttentionShapes, HeadsAreViewsOfDenseRows) {
  const at::Tensor x = at::arange(48).view({2, 3, 8});
  const at::Tensor heads = split_heads(x, 4);
  EXPECT_EQ(heads.sizes(), at::IntArrayRef({2, 4, 3, 2}));
  EXPECT_TRUE(heads.is_alias_of(x));
  EXPECT_EQ(heads[1][2][0][1].item<int64_t>(), 24 + 2 * 2 + 1);
  const at::Tensor expanded = at::ones({1, 1, 1}).expand({2, 3, 8});
  EXPECT_EQ(view_heads(expanded, 4).stride(-1), 1);
  EXPECT_EQ(split_heads(at::zeros({2, 0, 8}), 4).sizes(), at::IntArrayRef({2, 4, 0, 2}));
}

}  // namespace
}  // namespace trireme::parallel
