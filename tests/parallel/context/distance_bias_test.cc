#include "trireme/parallel/context/distance_bias.h"

// Attention with a bias by distance, and attention across sequences, against libtorch's operators
// and autograd on whole sequences.
#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/context/context_attention.h"

namespace trireme::parallel {
namespace {

struct RelativeCase {
  int64_t B = 2;
  int64_t T = 8;  // queries
  int64_t S = 0;  // keys of other sequences; 0: the queries' own, with a bias
  int64_t N = 4;
  int64_t K = 4;
  bool causal = false;
  ContextForm form = ContextForm::kRing;
  double softcap = 0;
};

constexpr int64_t kHead = 3;

struct RelativeTensors {
  at::Tensor q, k, v, bias, out;  // leaves, or their gradients
};

RelativeTensors make_relative(const RelativeCase& c, at::ScalarType dtype) {
  const at::Generator generator = at::detail::createCPUGenerator(3);
  const auto normal = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator, at::kDouble).to(dtype);
  };
  const int64_t S = c.S > 0 ? c.S : c.T;
  RelativeTensors data{normal({c.B, c.T, c.N * kHead}),
                       normal({c.B, S, c.K * kHead}),
                       normal({c.B, S, c.K * kHead}),
                       {},
                       normal({c.B, c.T, c.N * kHead})};
  // Longer than the sequences need.
  if (c.S == 0) data.bias = normal({c.N, 2 * (c.T + 2) - 1});
  return data;
}

// All scores at once, with the gradients of libtorch's autograd.
RelativeTensors whole_scores(const RelativeCase& c, const RelativeTensors& data) {
  const auto leaf = [](const at::Tensor& x) {
    return x.defined() ? x.detach().to(at::kDouble).requires_grad_() : x;
  };
  const RelativeTensors in{leaf(data.q), leaf(data.k), leaf(data.v), leaf(data.bias), {}};
  const auto heads = [&](const at::Tensor& x, int64_t count) {
    return x.unflatten(2, {count, kHead}).transpose(1, 2).repeat_interleave(c.N / count, 1);
  };
  at::Tensor scores = at::matmul(heads(in.q, c.N), heads(in.k, c.K).transpose(-1, -2)) * 0.7;
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  if (in.bias.defined()) {
    const at::Tensor place = at::arange(c.T, at::kLong);
    const at::Tensor distance_TT = place.unsqueeze(0) - place.unsqueeze(1) + in.bias.size(1) / 2;
    scores = scores + in.bias.index_select(1, distance_TT.flatten()).view({c.N, c.T, c.T});
  }
  if (c.causal) {
    const at::Tensor hidden = at::ones({c.T, c.T}, at::kBool).triu_(1);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor out =
      at::matmul(scores.softmax(-1), heads(in.v, c.K)).transpose(1, 2).flatten(2);
  (out * data.out.to(at::kDouble)).sum().backward();
  return {in.q.grad(), in.k.grad(), in.v.grad(), in.bias.defined() ? in.bias.grad() : in.bias,
          out.detach()};
}

RelativeTensors on_ranks(const RelativeCase& c, const RelativeTensors& data, int ranks) {
  const SequenceSplit split(c.T, ranks, SequenceOrder::kContiguous);
  const SequenceSplit keys(c.S > 0 ? c.S : c.T, ranks, SequenceOrder::kContiguous);
  std::vector<RelativeTensors> parts(ranks);
  harness::run_ranks(ranks, [&](comm::Communicator& group) {
    at::set_num_threads(1);
    const int rank = group.rank();
    const auto leaf = [&](const at::Tensor& whole, const SequenceSplit& of) {
      return of.local(whole, 1, rank).clone().requires_grad_();
    };
    const at::Tensor q = leaf(data.q, split), k = leaf(data.k, keys), v = leaf(data.v, keys);
    AttentionReach reach{.causal = c.causal, .scores = {.scale = 0.7, .softcap = c.softcap}};
    if (data.bias.defined()) reach.distance_bias_NR = data.bias.clone().requires_grad_();
    if (c.S > 0) reach.keys = keys;
    const ContextParallel context{.group = group, .split = split, .form = c.form};
    const at::Tensor out = context_attention(q, k, v, c.N, c.K, context, reach);
    (out * split.local(data.out, 1, rank)).sum().backward();
    parts[rank] = {q.grad(), k.grad(), v.grad(),
                   data.bias.defined() ? reach.distance_bias_NR.grad() : at::Tensor(),
                   out.detach()};
  });
  const auto whole = [&](at::Tensor RelativeTensors::*member, const SequenceSplit& of) {
    std::vector<at::Tensor> tensors;
    for (const RelativeTensors& part : parts) tensors.push_back(part.*member);
    return of.assemble(tensors, 1);
  };
  RelativeTensors result{whole(&RelativeTensors::q, split),
                         whole(&RelativeTensors::k, keys),
                         whole(&RelativeTensors::v, keys),
                         {},
                         whole(&RelativeTensors::out, split)};
  // The ranks' sum, as of every parameter over the context axis.
  for (const RelativeTensors& part : parts) {
    if (!data.bias.defined()) continue;
    result.bias = result.bias.defined() ? result.bias + part.bias : part.bias;
  }
  return result;
}

// In fp64 sums of some thousand terms are off by far less than 1e-12 of the largest element, or of
// 1 where terms of that size cancel, as with a single key. bf16 rounds what comes out once, and
// each rank's part of a bias: `ranks` units of 2^-9 of the largest.
void expect_whole(const RelativeCase& c, int ranks, at::ScalarType dtype = at::kDouble) {
  const RelativeTensors data = make_relative(c, dtype);
  const RelativeTensors actual = on_ranks(c, data, ranks), expected = whole_scores(c, data);
  const auto check = [&](const at::Tensor& a, const at::Tensor& e, const char* what) {
    if (!e.defined()) return;
    const double unit = dtype == at::kDouble ? 1e-12 : (ranks + 2) * 0x1p-9;
    const double largest = std::max(1.0, e.abs().max().item<double>());
    harness::assert_close(a, e, dtype == at::kDouble ? 1e-10 : 0, unit * largest,
                          concat(what, ", T ", c.T, " S ", c.S, " K ", c.K, " ranks ", ranks,
                                 c.causal ? " causal" : ""));
  };
  check(actual.out, expected.out, "out");
  check(actual.q, expected.q, "gradient of q");
  check(actual.k, expected.k, "gradient of k");
  check(actual.v, expected.v, "gradient of v");
  check(actual.bias, expected.bias, "gradient of the bias");
}

class RelativeAttention : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RelativeAttention, testing::Values(1, 2, 3, 4));

TEST_P(RelativeAttention, AddsTheBiasOfEachDistance) {
  for (const bool causal : {false, true}) {
    for (const int64_t T : {1, 2, 7, 33}) {
      for (const int64_t K : {4, 2}) {
        for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
          expect_whole({.T = T, .K = K, .causal = causal, .form = form}, GetParam());
        }
      }
    }
    // More queries than are computed at once, and a cap before the bias.
    expect_whole({.B = 1, .T = 530, .causal = causal}, GetParam());
    expect_whole({.T = 9, .causal = causal, .softcap = 0.5}, GetParam());
    expect_whole({.T = 33, .causal = causal}, GetParam(), at::kBFloat16);
  }
}

TEST_P(RelativeAttention, ReadsAllKeysOfOtherSequences) {
  for (const int64_t T : {1, 5, 33}) {
    for (const int64_t S : {1, 3, 40, 300}) {
      for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
        expect_whole({.T = T, .S = S, .K = S % 2 == 0 ? 2 : 4, .form = form}, GetParam());
      }
    }
  }
  expect_whole({.T = 5, .S = 40}, GetParam(), at::kBFloat16);
}

TEST(RelativeAttention, WhatDoesNotFitIsABug) {
  const at::Tensor x = at::zeros({1, 4, 6});
  const auto attend = [&](const AttentionReach& reach) {
    return whole_attention(x, x, x, 2, 2, reach);
  };
  EXPECT_NO_THROW(attend({.distance_bias_NR = at::zeros({2, 7})}));
  EXPECT_THROW(attend({.distance_bias_NR = at::zeros({2, 5})}), InternalError);  // too short
  EXPECT_THROW(attend({.distance_bias_NR = at::zeros({2, 8})}), InternalError);  // has no middle
  EXPECT_THROW(attend({.distance_bias_NR = at::zeros({3, 7})}), InternalError);  // other heads
  EXPECT_THROW(attend({.causal = true, .keys = SequenceSplit(4, 1)}), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
