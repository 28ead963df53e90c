#include "trireme/parallel/tensor/linear_distillation.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/base/error.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kVocab = 23;

// Student and teacher of the same 14 tokens, three of which have no target.
struct Problem {
  at::Tensor x = values({2, 7, 6}, 0.37, 3);
  at::Tensor w = values({kVocab, 6}, 0.53, 2);
  at::Tensor bias = values({kVocab}, 0.91);
  at::Tensor teacher_x = values({2, 7, 5}, 0.71, 3);
  at::Tensor teacher_w = values({kVocab, 5}, 0.29, 2);
  at::Tensor targets = at::arange(14, at::kLong).mul(5).remainder(kVocab).view({2, 7}).clone();

  Problem() { targets.select(0, 1).narrow(0, 2, 3).fill_(kIgnoredTarget); }
};

at::Tensor capped(const at::Tensor& logits, double cap) {
  return cap > 0 ? cap * at::tanh(logits / cap) : logits;
}

// The paper's formula in plain operators; in[0], in[1] and in[2] are the student's x, w and bias.
at::Tensor plain(const Tensors& in, const Problem& p, const DistillationOptions& options,
                 double cap, double teacher_cap) {
  const double T = options.temperature, w = options.weight;
  const at::Tensor targets_S = p.targets.flatten();
  const at::Tensor learnt = targets_S.ne(kIgnoredTarget).nonzero().squeeze(1);
  const at::Tensor z = capped(at::linear(in[0], in[1], in[2]), cap).flatten(0, -2);
  const at::Tensor y = capped(at::linear(p.teacher_x, p.teacher_w), teacher_cap).flatten(0, -2);
  const at::Tensor ce = at::cross_entropy_loss(
      z.index_select(0, learnt), targets_S.index_select(0, learnt), {}, at::Reduction::Sum);
  const at::Tensor log_q = at::log_softmax(z.index_select(0, learnt) / T, 1);
  const at::Tensor log_p = at::log_softmax(y.index_select(0, learnt) / T, 1);
  const at::Tensor kl = (log_p.exp() * (log_p - log_q)).sum();
  return (1 - w) * ce + w * T * T * kl;
}

TEST(LinearDistillation, EqualsThePapersFormulaOnEveryRankOfASplitVocabulary) {
  const Problem p;
  for (const double temperature : {1.0, 2.5}) {
    for (const double weight : {0.0, 0.3, 1.0}) {
      for (const double cap : {0.0, 2.5}) {
        const DistillationOptions options{.temperature = temperature, .weight = weight};
        Tensors leaves = {p.x.clone().requires_grad_(), p.w.clone().requires_grad_(),
                          p.bias.clone().requires_grad_()};
        const at::Tensor whole = plain(leaves, p, options, cap, 1.5 * cap);
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
          const DistillationLoss loss =
              linear_distillation({.x = own_x, .w_vD = own_w, .bias_v = own_b, .softcap = cap},
                                  {.x = held_rows(p.teacher_x, axis),
                                   .w_vD = part_of(p.teacher_w, 0, axis),
                                   .softcap = 1.5 * cap},
                                  p.targets, own);
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

TEST(LinearDistillation, ReportsBothPartsOfTheLoss) {
  const Problem p;
  const at::NoGradGuard guard;
  const auto part = [&](double weight) {
    return plain({p.x, p.w, p.bias}, p, {.temperature = 2, .weight = weight}, 0, 0);
  };
  const DistillationLoss loss = linear_distillation(
      {.x = p.x, .w_vD = p.w, .bias_v = p.bias}, {.x = p.teacher_x, .w_vD = p.teacher_w}, p.targets,
      {.temperature = 2, .weight = 0.25, .chunk_tokens = 3});
  assert_close(loss.cross_entropy, part(0), 1e-12, 0, "cross-entropy");
  assert_close(loss.divergence, part(1) / 4, 1e-12, 0, "divergence");
  assert_close(loss.sum, part(0.25), 1e-12, 0, "loss");
}

TEST(LinearDistillation, WithWeightZeroItIsTheCrossEntropyToTheBit) {
  const Problem p;
  const auto run = [&](bool distils) {
    const Tensors leaves = {p.x.to(at::kFloat).requires_grad_(),
                            p.w.to(at::kFloat).requires_grad_()};
    const at::Tensor sum = distils ? linear_distillation({.x = leaves[0], .w_vD = leaves[1]},
                                                         {.x = p.teacher_x, .w_vD = p.teacher_w},
                                                         p.targets, {.temperature = 1, .weight = 0})
                                         .sum
                                   : linear_cross_entropy(leaves[0], leaves[1], p.targets).sum;
    Tensors result = torch::autograd::grad({sum}, leaves);
    result.push_back(sum.detach());
    return result;
  };
  const Tensors found = run(true), expected = run(false);
  for (size_t i = 0; i < 3; ++i) assert_same_bits(found[i], expected[i], std::to_string(i));
}

// Exactly, in any precision and with the vocabulary split: nothing but equal numbers is subtracted.
TEST(LinearDistillation, AStudentThatIsItsTeacherLearnsNothingFromIt) {
  const Problem p;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for_each_axis({1, 3}, [&](const TensorAxis& axis) {
      const at::Tensor x = held_rows(p.x, axis).to(dtype).requires_grad_();
      const at::Tensor w = part_of(p.w, 0, axis).to(dtype).requires_grad_();
      const int64_t first = mesh::split_range(kVocab, axis.size(), axis.rank()).offset;
      const DistillationLoss loss = linear_distillation(
          {.x = x, .w_vD = w, .softcap = 2}, {.x = x, .w_vD = w, .softcap = 2}, p.targets,
          {.temperature = 3, .weight = 1, .axis = axis, .first_row = first, .vocab_size = kVocab});
      EXPECT_EQ(loss.divergence.item<double>(), 0);
      EXPECT_EQ(loss.sum.item<double>(), 0);
      EXPECT_GT(loss.cross_entropy.item<double>(), 1);
      for (const at::Tensor& grad : torch::autograd::grad({loss.sum}, {x, w})) {
        EXPECT_EQ(grad.count_nonzero().item<int64_t>(), 0);
      }
    });
  }
}

TEST(LinearDistillation, TheTeacherGetsNoGradient) {
  const Problem p;
  const at::Tensor w = p.w.clone().requires_grad_();
  const at::Tensor teacher_w = p.teacher_w.clone().requires_grad_();
  const DistillationLoss loss =
      linear_distillation({.x = p.x, .w_vD = w}, {.x = p.teacher_x, .w_vD = teacher_w}, p.targets);
  loss.sum.backward();
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(teacher_w.grad().defined());
}

TEST(LinearDistillation, ADeviceComputesWhatTheHostComputes) {
  const Problem p;
  // A gradient on a device is a sum of products of numbers of `dtype`.
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-13}, {at::kFloat, 8e-6}, {at::kBFloat16, 0x1p-6}}) {
    const auto run = [&, dtype = dtype](at::Device device) {
      const Tensors leaves = {p.x.to(device, dtype).requires_grad_(),
                              p.w.to(device, dtype).requires_grad_()};
      const DistillationLoss loss = linear_distillation(
          {.x = leaves[0], .w_vD = leaves[1], .softcap = 4},
          {.x = p.teacher_x.to(device, dtype), .w_vD = p.teacher_w.to(device, dtype)},
          p.targets.to(device), {.temperature = 2});
      Tensors result = torch::autograd::grad({loss.sum * 0.5}, leaves);
      result.push_back(loss.sum.detach());
      for (at::Tensor& each : result) {
        EXPECT_EQ(each.device(), device);
        each = each.cpu().to(at::kDouble);
      }
      return result;
    };
    const Tensors host = run(at::kCPU), device = run(fake_device(0));
    for (size_t i = 0; i < host.size(); ++i) {
      assert_close(device[i], host[i], tolerance, tolerance, std::to_string(i));
    }
  }
}

TEST(LinearDistillation, LogitsThatOverflowExpAreFine) {
  const at::Tensor x = at::full({1, 1}, 1000.0, at::kFloat);
  const at::Tensor w = at::tensor({-1.0f, 0.0f, 1.0f}).view({3, 1});
  const DistillationLoss loss = linear_distillation({.x = x, .w_vD = w}, {.x = x, .w_vD = -w},
                                                    at::full({1}, 2, at::kLong), {.weight = 1});
  EXPECT_EQ(loss.divergence.item<double>(), 2000);
  EXPECT_EQ(loss.cross_entropy.item<double>(), 0);
}

TEST(LinearDistillation, NoTokensAndNoCountedTokensSumToZero) {
  for (const int64_t tokens : {0, 3}) {
    const at::Tensor targets = at::full({tokens}, kIgnoredTarget, at::kLong);
    const at::Tensor x = values({tokens, 4}, 0.3).requires_grad_();
    const at::Tensor w = values({9, 4}, 0.7).requires_grad_();
    const DistillationLoss loss = linear_distillation(
        {.x = x, .w_vD = w}, {.x = values({tokens, 2}, 0.9), .w_vD = values({9, 2}, 0.4)}, targets);
    EXPECT_EQ(loss.count, 0);
    EXPECT_EQ(loss.sum.item<double>(), 0);
    const auto grads = torch::autograd::grad({loss.sum}, {x, w});
    assert_same_bits(grads[0], at::zeros_like(x), "x");
    assert_same_bits(grads[1], at::zeros_like(w), "w");
  }
}

TEST(LinearDistillation, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8, of_teacher = S * 3 * 8;
      const at::Tensor x = held_rows(values({S, D}, 0.3), axis).requires_grad_();
      const at::Tensor targets = at::arange(S, at::kLong);
      (void)linear_distillation(
          {.x = x, .w_vD = values({3, D}, 0.5)},
          {.x = held_rows(values({S, 3}, 0.3), axis), .w_vD = values({3, 3}, 0.5)}, targets,
          {.axis = axis, .first_row = 3 * group.rank(), .vocab_size = 12});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes,
                2 * 3 * n / 4 + 3 * S * 48 + (sequence ? 3 * of_teacher / 4 : 0));
    });
  }
}

TEST(LinearDistillation, MisuseThrows) {
  const at::Tensor x = values({3, 4}, 0.3), w = values({9, 4}, 0.7).requires_grad_();
  const at::Tensor targets = at::zeros({3}, at::kLong);
  const LinearHead teacher{.x = x, .w_vD = w};
  EXPECT_THROW(linear_distillation({.x = x, .w_vD = w}, teacher, at::full({3}, 9, at::kLong)),
               ConfigError);
  EXPECT_THROW(linear_distillation({.x = x, .w_vD = w}, teacher, targets, {.temperature = 0}),
               InternalError);
  EXPECT_THROW(
      linear_distillation({.x = x, .w_vD = w}, {.x = x, .w_vD = w.narrow(0, 0, 8)}, targets),
      InternalError);
  const DistillationLoss loss = linear_distillation({.x = x, .w_vD = w}, teacher, targets);
  torch::autograd::grad({loss.sum}, {w}, {}, /*retain_graph=*/true);
  EXPECT_THROW(torch::autograd::grad({loss.sum}, {w}), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
