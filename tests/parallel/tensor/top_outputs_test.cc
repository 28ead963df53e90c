#include "trireme/parallel/tensor/top_outputs.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/base/error.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"
#include "trireme/parallel/tensor/linear_distillation.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kVocab = 23;

// Student and teacher of the same 14 tokens, three of which have no target.
struct Tokens {
  at::Tensor x = values({2, 7, 6}, 0.37, 3);
  at::Tensor w = values({kVocab, 6}, 0.53, 2);
  at::Tensor bias = values({kVocab}, 0.91);
  at::Tensor teacher_x = values({2, 7, 5}, 0.71, 3);
  at::Tensor teacher_w = values({kVocab, 5}, 0.29, 2);
  at::Tensor teacher_bias = values({kVocab}, 0.17);
  at::Tensor targets = at::arange(14, at::kLong).mul(5).remainder(kVocab).view({2, 7}).clone();

  Tokens() { targets.select(0, 1).narrow(0, 2, 3).fill_(kIgnoredTarget); }

  at::Tensor teacher_logits() const {
    return (1.5 * at::tanh(at::linear(teacher_x, teacher_w, teacher_bias) / 1.5)).flatten(0, 1);
  }
  TopOutputs top(int64_t k, double temperature, const TensorAxis& axis = {}) const {
    return linear_top_outputs(
        {.x = held_rows(teacher_x, axis),
         .w_vD = part_of(teacher_w, 0, axis),
         .bias_v = part_of(teacher_bias, 0, axis),
         .softcap = 1.5},
        14,
        {.top_k = k,
         .temperature = temperature,
         .chunk_tokens = 4,
         .axis = axis,
         .first_row = mesh::split_range(kVocab, axis.size(), axis.rank()).offset,
         .vocab_size = kVocab});
  }
};

// [S, V] of 0 and 1: which tokens are among the k.
at::Tensor is_top(const TopOutputs& top) {
  return at::zeros({top.tokens_Sk.size(0), kVocab}, at::kDouble).scatter(1, top.tokens_Sk, 1);
}

// (1 - w) CE + w T^2 times the divergence over k + 1 classes, in plain operators; in[0], in[1] and
// in[2] are the student's x, w and bias.
at::Tensor plain_loss(const Tensors& in, const Tokens& p, const TopOutputs& top,
                      const DistillationOptions& options, double cap) {
  const double T = options.temperature, w = options.weight;
  const at::Tensor targets_S = p.targets.flatten();
  const at::Tensor learnt = targets_S.ne(kIgnoredTarget).nonzero().squeeze(1);
  at::Tensor z = at::linear(in[0], in[1], in[2]).flatten(0, -2);
  if (cap > 0) z = cap * at::tanh(z / cap);
  const auto of = [&](const at::Tensor& rows) { return rows.index_select(0, learnt); };
  const at::Tensor ce = at::cross_entropy_loss(of(z), of(targets_S), {}, at::Reduction::Sum);
  const auto classes = [&](const at::Tensor& logits) {
    const at::Tensor q = at::softmax(logits / T, 1), chosen = is_top(top);
    const at::Tensor rest = (q * (1 - chosen)).sum(1, /*keepdim=*/true);
    return at::cat({q.gather(1, top.tokens_Sk), rest}, 1);
  };
  const at::Tensor q = of(classes(z)), p_S = of(classes(p.teacher_logits()));
  const bool is_whole = top.tokens_Sk.size(1) == kVocab;
  const int64_t n = is_whole ? kVocab : top.tokens_Sk.size(1) + 1;  // 0 log 0 is 0
  const at::Tensor kl =
      (p_S.narrow(1, 0, n) * (p_S.narrow(1, 0, n).log() - q.narrow(1, 0, n).log())).sum();
  return (1 - w) * ce + w * T * T * kl;
}

TEST(TopOutputs, AreTheMostProbableTokensOnEveryRankOfASplitVocabulary) {
  const Tokens p;
  for (const double temperature : {1.0, 2.5}) {
    const at::Tensor log_p = at::log_softmax(p.teacher_logits() / temperature, 1);
    for (const int64_t k : {int64_t{1}, int64_t{4}, int64_t{12}, kVocab}) {
      const at::Tensor expected = std::get<0>(std::get<1>(log_p.topk(k, 1)).sort(1));
      const at::Tensor rest =
          (log_p.exp() * (1 - at::zeros_like(log_p).scatter(1, expected, 1))).sum(1).log();
      for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
        const TopOutputs top = p.top(k, temperature, axis);
        assert_same_bits(top.tokens_Sk, expected, "tokens");
        assert_close(top.log_p_Sk, log_p.gather(1, expected), 1e-13, 1e-13, "log p");
        if (k < kVocab) {
          assert_close(top.log_rest_S, rest, 1e-13, 1e-13, "rest");
        } else {
          EXPECT_TRUE(top.log_rest_S.eq(-INFINITY).all().item<bool>());
        }
        for (at::Tensor mine : {top.log_p_Sk, top.log_rest_S}) {
          at::Tensor of_root = mine.clone();
          axis.group->broadcast(of_root, 0)->wait();
          assert_same_bits(mine, of_root, "ranks");
        }
      });
    }
  }
}

TEST(TopOutputs, TheLossIsThatOfKPlusOneClassesOnEveryRankOfASplitVocabulary) {
  const Tokens p;
  for (const double temperature : {1.0, 2.5}) {
    for (const int64_t k : {int64_t{1}, int64_t{4}, kVocab}) {
      for (const double cap : {0.0, 2.5}) {
        const DistillationOptions options{.temperature = temperature, .weight = 0.3};
        const TopOutputs top = p.top(k, temperature);
        const Tensors leaves = {p.x.clone().requires_grad_(), p.w.clone().requires_grad_(),
                                p.bias.clone().requires_grad_()};
        const at::Tensor whole = plain_loss(leaves, p, top, options, cap);
        const Tensors expected = torch::autograd::grad({whole * 0.5}, leaves);
        for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
          const at::Tensor own_x = held_rows(p.x, axis).requires_grad_();
          const at::Tensor own_w = part_of(p.w, 0, axis).requires_grad_();
          const at::Tensor own_b = part_of(p.bias, 0, axis).requires_grad_();
          DistillationOptions own = options;
          own.chunk_tokens = 4;
          own.axis = axis;
          own.first_row = mesh::split_range(kVocab, axis.size(), axis.rank()).offset;
          own.vocab_size = kVocab;
          const DistillationLoss loss = linear_distillation(
              {.x = own_x, .w_vD = own_w, .bias_v = own_b, .softcap = cap}, top, p.targets, own);
          EXPECT_EQ(loss.count, 11);
          at::Tensor of_root = loss.sum.detach().clone();
          axis.group->broadcast(of_root, 0)->wait();
          assert_same_bits(loss.sum.detach(), of_root, "loss");
          const Tensors grads = torch::autograd::grad({loss.sum * 0.5}, {own_x, own_w, own_b});
          assert_close(loss.sum.detach(), whole.detach(), 1e-12, 0, "loss");
          assert_close(grads[0], held_rows(expected[0], axis), 1e-11, 1e-13, "grad x");
          assert_close(grads[1], part_of(expected[1], 0, axis), 1e-11, 1e-13, "grad w");
          assert_close(grads[2], part_of(expected[2], 0, axis), 1e-11, 1e-13, "grad b");
        });
      }
    }
  }
}

TEST(TopOutputs, TheDivergenceGrowsWithKToThatFromTheTeacherItself) {
  const Tokens p;
  const at::NoGradGuard guard;
  const LinearHead student{.x = p.x, .w_vD = p.w, .bias_v = p.bias};
  const DistillationOptions options{.temperature = 2, .weight = 1};
  const double whole =
      linear_distillation(
          student,
          {.x = p.teacher_x, .w_vD = p.teacher_w, .bias_v = p.teacher_bias, .softcap = 1.5},
          p.targets, options)
          .divergence.item<double>();
  double before = 0;
  for (int64_t k = 1; k <= kVocab; ++k) {
    const double found =
        linear_distillation(student, p.top(k, 2), p.targets, options).divergence.item<double>();
    // At k = V - 1 the rest is one token, so nothing is left to grow.
    if (k < kVocab) EXPECT_GT(found, before) << k;
    before = found;
    if (k >= kVocab - 1) EXPECT_NEAR(found, whole, 1e-12 * whole) << k;
  }
}

TEST(TopOutputs, AStudentThatDividesTheRestOtherwiseLearnsNothingMore) {
  const at::Tensor logits = at::tensor({3.0, 1.0, 0.5, 0.2, -1.0}, at::kDouble);
  const TopOutputs top = linear_top_outputs(
      {.x = at::ones({1, 1}, at::kDouble), .w_vD = logits.view({5, 1})}, 1, {.top_k = 2});
  // The same three others in another order: the classes have the same probabilities.
  const at::Tensor w =
      at::tensor({3.0, 1.0, -1.0, 0.5, 0.2}, at::kDouble).view({5, 1}).requires_grad_();
  const DistillationLoss loss = linear_distillation({.x = at::ones({1, 1}, at::kDouble), .w_vD = w},
                                                    top, at::zeros({1}, at::kLong), {.weight = 1});
  EXPECT_NEAR(loss.divergence.item<double>(), 0, 1e-15);
  assert_close(torch::autograd::grad({loss.sum}, {w})[0], at::zeros_like(w), 0, 1e-15, "w");
}

TEST(TopOutputs, ARestWithoutProbabilityInTheStudentStaysFinite) {
  // Of the student's distribution fp32 has nothing left for the rest: exp(-200).
  const at::Tensor x = at::ones({1, 1}, at::kFloat);
  const at::Tensor w = at::tensor({200.0f, 0.0f, 0.0f}).view({3, 1}).requires_grad_();
  const TopOutputs top{.tokens_Sk = at::zeros({1, 1}, at::kLong),
                       .log_p_Sk = at::full({1, 1}, std::log(0.75), at::kFloat),
                       .log_rest_S = at::full({1}, std::log(0.25), at::kFloat)};
  const DistillationLoss loss =
      linear_distillation({.x = x, .w_vD = w}, top, at::zeros({1}, at::kLong), {.weight = 1});
  const double expected = 0.75 * std::log(0.75) + 0.25 * (std::log(0.25) - (std::log(2) - 200));
  EXPECT_NEAR(loss.divergence.item<double>(), expected, 1e-5);
  assert_close(torch::autograd::grad({loss.sum}, {w})[0],
               at::tensor({0.25f, -0.125f, -0.125f}).view({3, 1}), 1e-6, 1e-6, "w");
}

TEST(TopOutputs, WithWeightZeroTheLossIsTheCrossEntropyToTheBit) {
  const Tokens p;
  const auto run = [&](bool distils) {
    const Tensors leaves = {p.x.to(at::kFloat).requires_grad_(),
                            p.w.to(at::kFloat).requires_grad_()};
    const LinearHead head{.x = leaves[0], .w_vD = leaves[1]};
    const at::Tensor sum =
        distils ? linear_distillation(head, p.top(3, 1), p.targets, {.weight = 0}).sum
                : linear_cross_entropy(head.x, head.w_vD, p.targets).sum;
    Tensors result = torch::autograd::grad({sum}, leaves);
    result.push_back(sum.detach());
    return result;
  };
  const Tensors found = run(true), expected = run(false);
  for (size_t i = 0; i < 3; ++i) assert_same_bits(found[i], expected[i], std::to_string(i));
}

TEST(TopOutputs, ADeviceComputesWhatTheHostComputes) {
  const Tokens p;
  const auto run = [&](at::Device device) {
    const Tensors leaves = {p.x.to(device).requires_grad_(), p.w.to(device).requires_grad_()};
    const TopOutputs top =
        linear_top_outputs({.x = p.teacher_x.to(device), .w_vD = p.teacher_w.to(device)}, 14,
                           {.top_k = 4, .temperature = 2});
    const DistillationLoss loss = linear_distillation({.x = leaves[0], .w_vD = leaves[1]}, top,
                                                      p.targets.to(device), {.temperature = 2});
    Tensors result = torch::autograd::grad({loss.sum * 0.5}, leaves);
    result.push_back(loss.sum.detach());
    for (at::Tensor& each : result) {
      EXPECT_EQ(each.device(), device);
      each = each.cpu();
    }
    return result;
  };
  const Tensors host = run(at::kCPU), device = run(fake_device(0));
  for (size_t i = 0; i < host.size(); ++i) {
    assert_close(device[i], host[i], 1e-13, 1e-13, std::to_string(i));
  }
}

TEST(TopOutputs, SendTheBytesTheyState) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8, k = 5;
      const at::Tensor x = values({S, D}, 0.3);
      const TopOutputs top = linear_top_outputs(
          {.x = held_rows(x, axis), .w_vD = values({3, D}, 0.5)}, S,
          {.top_k = k, .axis = axis, .first_row = 3 * group.rank(), .vocab_size = 12});
      const auto sent = [&] { return counting.ledger().of(group.name()).bytes; };
      const int64_t recorded = sent();
      EXPECT_EQ(recorded, 3 * S * 16 * (k + 1) + (sequence ? 3 * n / 4 : 0));
      (void)linear_distillation(
          {.x = held_rows(x, axis).requires_grad_(), .w_vD = values({3, D}, 0.5)}, top,
          at::arange(S, at::kLong),
          {.axis = axis, .first_row = 3 * group.rank(), .vocab_size = 12});
      EXPECT_EQ(sent() - recorded, 2 * 3 * n / 4 + 3 * S * 56);
    });
  }
}

TEST(TopOutputs, NoTokensAndMisuse) {
  const at::Tensor none = values({0, 4}, 0.3), w = values({9, 4}, 0.7);
  const TopOutputs top = linear_top_outputs({.x = none, .w_vD = w}, 0, {.top_k = 2});
  EXPECT_EQ(top.tokens_Sk.sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(linear_distillation({.x = none, .w_vD = w}, top, at::empty({0}, at::kLong))
                .sum.item<double>(),
            0);
  for (const int64_t k : {0, 10}) {
    EXPECT_THROW(linear_top_outputs({.x = none, .w_vD = w}, 0, {.top_k = k}), InternalError);
  }
  EXPECT_THROW(
      linear_distillation({.x = values({3, 4}, 0.3), .w_vD = w}, top, at::zeros({3}, at::kLong)),
      InternalError);
}

}  // namespace
}  // namespace trireme::parallel
