#include "tests/parallel/context/attention_oracle.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {
namespace {

// [B, T, N * H] -> [B, N, T, H], kv heads copied for their query heads.
at::Tensor heads_of(const at::Tensor& x, int64_t heads, int64_t copies) {
  return x.unflatten(2, {heads, -1}).transpose(1, 2).repeat_interleave(copies, 1);
}

// Back, with the copies of a kv head summed.
at::Tensor join(const at::Tensor& x_BNTH, int64_t copies) {
  return x_BNTH.unflatten(1, {-1, copies}).sum(2).transpose(1, 2).flatten(2);
}

at::Tensor random_documents(const AttentionCase& c, std::mt19937_64& random) {
  at::Tensor documents_BT = at::empty({c.B, c.T}, at::kLong);
  for (int64_t b = 0; b < c.B; ++b) {
    int64_t left = 0;
    int64_t document = 0;
    for (int64_t i = 0; i < c.T; ++i) {
      if (left-- == 0) {
        left = static_cast<int64_t>(random() % (c.T / 3 + 1));
        document = static_cast<int64_t>(random() % 5);  // a number may come back
      }
      documents_BT.data_ptr<int64_t>()[b * c.T + i] = document;
    }
  }
  return documents_BT;
}

double rounding_unit(at::ScalarType dtype) {
  if (dtype == at::kDouble) return std::ldexp(1.0, -53);
  return dtype == at::kFloat ? std::ldexp(1.0, -24) : std::ldexp(1.0, -9);  // fp32, bf16
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "ranks " << c.ranks << " B " << c.B << " T " << c.T << " N " << c.N << " K " << c.K
             << " H " << c.H << (c.order == SequenceOrder::kZigZag ? " zig-zag" : " contiguous")
             << (c.has_documents ? " documents" : "") << (c.causal ? "" : " not causal")
             << " window " << c.window << " scale " << c.scores.scale << " cap " << c.scores.softcap
             << (c.has_sinks ? " sinks" : "") << " seed " << c.seed;
}

std::string text_of(const AttentionCase& c) { return concat(c); }

AttentionData make_data(const AttentionCase& c, at::ScalarType dtype) {
  const at::Generator generator = at::detail::createCPUGenerator(c.seed);
  std::mt19937_64 random(c.seed);
  const auto normal = [&](int64_t width) {
    return at::randn({c.B, c.T, width}, generator, at::kDouble).to(dtype);
  };
  AttentionData data{
      normal(c.N * c.H), normal(c.K * c.H), normal(c.K * c.H), normal(c.N * c.H), {}};
  data.reach = {.causal = c.causal, .window = c.window, .scores = c.scores};
  if (c.has_documents) data.reach.documents_BT = random_documents(c, random);
  if (c.has_sinks) {
    data.reach.sinks_N = at::randn({c.N}, generator, at::kDouble).to(dtype).requires_grad_();
  }
  return data;
}

Expected oracle(const AttentionCase& c, const AttentionData& data) {
  const double scale =
      c.scores.scale > 0 ? c.scores.scale : 1 / std::sqrt(static_cast<double>(c.H));
  const int64_t copies = c.N / c.K;
  const at::Tensor q = heads_of(data.q_BTD.to(at::kDouble), c.N, 1);
  const at::Tensor k = heads_of(data.k_BTG.to(at::kDouble), c.K, copies);
  const at::Tensor v = heads_of(data.v_BTG.to(at::kDouble), c.K, copies);
  const at::Tensor w = heads_of(data.out_BTD.to(at::kDouble), c.N, 1);
  at::Tensor is_read = at::ones({c.T, c.T}, at::kBool);
  if (c.causal) is_read.tril_();
  if (c.window > 0) is_read.triu_(1 - c.window);
  is_read = is_read.expand({c.B, 1, c.T, c.T});
  if (const at::Tensor& d = data.reach.documents_BT; d.defined()) {
    is_read = is_read.logical_and(d.unsqueeze(2).eq(d.unsqueeze(1)).unsqueeze(1));
  }
  const at::Tensor scaled = at::matmul(q, k.transpose(-1, -2)).mul(scale);
  const double cap = c.scores.softcap;
  const at::Tensor capped = cap > 0 ? at::tanh(scaled / cap) * cap : scaled;
  const at::Tensor slope =
      cap > 0 ? at::cosh(scaled / cap).square().reciprocal() : at::ones_like(scaled);
  at::Tensor all =
      capped.masked_fill(is_read.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor& sinks = data.reach.sinks_N;
  if (sinks.defined()) {
    const at::Tensor column = sinks.detach().to(at::kDouble).view({1, c.N, 1, 1});
    all = at::cat({all, column.expand({c.B, c.N, c.T, 1})}, -1);
  }
  all = all.softmax(-1);
  const at::Tensor p = all.narrow(-1, 0, c.T);
  const at::Tensor out = at::matmul(p, v);
  const at::Tensor grad_p = at::matmul(w, v.transpose(-1, -2));
  const at::Tensor grad_s = slope * p * (grad_p - (w * out).sum(-1, true));
  const at::Tensor out_abs = at::matmul(p, v.abs());
  const at::Tensor grad_s_abs =
      p * (at::matmul(w.abs(), v.abs().transpose(-1, -2)) + (w.abs() * out_abs).sum(-1, true));
  const auto flipped = [](const at::Tensor& x) { return x.transpose(-1, -2); };
  Expected expected;
  expected.result = {join(at::matmul(grad_s, k) * scale, 1),
                     join(at::matmul(flipped(grad_s), q) * scale, copies),
                     join(at::matmul(flipped(p), w), copies),
                     join(out, 1),
                     {}};
  expected.absolute = {join(at::matmul(grad_s_abs, k.abs()) * scale, 1),
                       join(at::matmul(flipped(grad_s_abs), q.abs()) * scale, copies),
                       join(at::matmul(flipped(p), w.abs()), copies),
                       join(out_abs, 1),
                       {}};
  if (sinks.defined()) {
    const at::Tensor p_sink = all.select(-1, c.T);
    const auto of_sinks = [&](const at::Tensor& rows) { return (p_sink * rows).sum({0, 2}); };
    expected.result.reach.sinks_N = of_sinks((w * out).sum(-1)).neg();
    expected.absolute.reach.sinks_N = of_sinks((w.abs() * out_abs).sum(-1));
  }
  expected.largest_score =
      q.norm(2, -1).max().item<double>() * k.norm(2, -1).max().item<double>() * scale;
  return expected;
}

AttentionData run_split(const AttentionCase& c, const AttentionData& data, const Attend& attend) {
  const SequenceSplit split(c.T, c.ranks, c.order);
  std::vector<at::Tensor> q(c.ranks), k(c.ranks), v(c.ranks), out(c.ranks);
  at::Tensor sinks = data.reach.sinks_N;
  if (sinks.defined()) sinks.mutable_grad().reset();
  harness::run_ranks(c.ranks, [&](comm::Communicator& group) {
    at::set_num_threads(1);
    const int rank = group.rank();
    const auto leaf = [&](const at::Tensor& whole) {
      return split.local(whole, 1, rank).clone().requires_grad_();
    };
    const at::Tensor q_BtD = leaf(data.q_BTD);
    const at::Tensor k_BtG = leaf(data.k_BTG);
    const at::Tensor v_BtG = leaf(data.v_BTG);
    const at::Tensor out_BtD = attend(q_BtD, k_BtG, v_BtG, split, group);
    (out_BtD * split.local(data.out_BTD, 1, rank)).sum().backward();
    q[rank] = q_BtD.grad();
    k[rank] = k_BtG.grad();
    v[rank] = v_BtG.grad();
    out[rank] = out_BtD.detach();
  });
  const auto whole = [&](const std::vector<at::Tensor>& parts) { return split.assemble(parts, 1); };
  AttentionData result{whole(q), whole(k), whole(v), whole(out), data.reach};
  // The ranks' sum, as of every parameter over the context axis.
  if (sinks.defined()) result.reach.sinks_N = sinks.grad();
  return result;
}

// A score is a sum of H products, so it is off by (H + 1) units of |q| |k| / sqrt(H) at most, and a
// probability, a quotient of exponentials, by twice that and one unit for each of the T terms of
// its denominator and the 2 p blocks that rescale it. It then enters sums of at most H, T or (N/K)
// T terms. All in all no more than `depth` units of the sum of absolute values. bf16 sums in fp32
// and rounds each factor of a product once: inputs not at all; probabilities, their gradients, each
// block's output or gradient and the result: 8 units of its own. In fp64 the bound is 1e-10
// relative, and `depth` matters only where the true gradient is 0, as that of q with a single
// token.
void expect_close(const AttentionCase& c, const AttentionData& actual, const Expected& expected) {
  const at::ScalarType dtype = actual.out_BTD.scalar_type();
  const auto check = [&](const at::Tensor& a, const at::Tensor& e, const at::Tensor& absolute,
                         const char* what) {
    const std::string text = concat(what, ": ", c);
    const auto terms = static_cast<double>(2 * c.H + c.T + c.N / c.K * c.T + 4 * c.ranks + 16);
    const double depth = 2 * static_cast<double>(c.H + 1) * expected.largest_score + terms;
    const double largest = absolute.numel() > 0 ? absolute.max().item<double>() : 0;
    const double bound = rounding_unit(accumulation_dtype(dtype)) * depth * largest;
    if (dtype == at::kDouble) return harness::assert_close(a, e, 1e-10, bound, text);
    const double low = dtype == at::kBFloat16 ? 8 * rounding_unit(dtype) * largest : 0;
    harness::assert_close(a, e, 0, bound + low, text);
  };
  check(actual.out_BTD, expected.result.out_BTD, expected.absolute.out_BTD, "out");
  check(actual.q_BTD, expected.result.q_BTD, expected.absolute.q_BTD, "gradient of q");
  check(actual.k_BTG, expected.result.k_BTG, expected.absolute.k_BTG, "gradient of k");
  check(actual.v_BTG, expected.result.v_BTG, expected.absolute.v_BTG, "gradient of v");
  const at::Tensor& sinks = expected.result.reach.sinks_N;
  if (sinks.defined())
    check(actual.reach.sinks_N, sinks, expected.absolute.reach.sinks_N, "gradient of sinks");
}

void for_each_full_case(int ranks, const std::function<void(const AttentionCase&)>& expect) {
  constexpr int64_t kHeads[][2] = {{4, 4}, {6, 2}};
  uint64_t seed = 0;
  for (const SequenceOrder order : {SequenceOrder::kContiguous, SequenceOrder::kZigZag}) {
    for (const bool has_documents : {false, true}) {
      for (const int64_t T : {1, 2, 5, 33, 197}) {
        for (const auto& [N, K] : kHeads) {
          const int64_t B = ++seed % 2 == 0 ? 1 : 3;
          expect({ranks, B, T, N, K, 8, order, has_documents, seed, /*causal=*/false});
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

void expect_same_bits(const AttentionData& actual, const AttentionData& expected,
                      const std::string& what) {
  harness::assert_same_bits(actual.out_BTD, expected.out_BTD, what + ", out");
  harness::assert_same_bits(actual.q_BTD, expected.q_BTD, what + ", gradient of q");
  harness::assert_same_bits(actual.k_BTG, expected.k_BTG, what + ", gradient of k");
  harness::assert_same_bits(actual.v_BTG, expected.v_BTG, what + ", gradient of v");
}

}  // namespace trireme::parallel
