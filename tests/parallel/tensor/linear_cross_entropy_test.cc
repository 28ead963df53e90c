#include "trireme/parallel/tensor/linear_cross_entropy.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

at::Tensor plain(const Tensors& in, const at::Tensor& targets, double softcap = 0) {
  const at::Tensor logits = at::linear(in[0], in[1]).flatten(0, -2);
  const at::Tensor capped = softcap > 0 ? softcap * at::tanh(logits / softcap) : logits;
  return at::cross_entropy_loss(capped, targets.flatten(), {}, at::Reduction::Sum, kIgnoredTarget);
}

at::Tensor some_targets(int64_t tokens, int64_t vocab) {
  return at::arange(tokens, at::kLong).mul(5).remainder(vocab);
}

TEST(LinearCrossEntropy, EqualsLinearThenCrossEntropyAtEveryChunkSize) {
  const at::Tensor x = values({2, 7, 6}, 0.37, 3);
  const at::Tensor w = values({37, 6}, 0.53, 2);
  const at::Tensor targets = some_targets(14, 37).view({2, 7});
  targets.select(0, 1).narrow(0, 2, 3).fill_(kIgnoredTarget);
  for (const int64_t chunk : {1, 3, 14, 100}) {
    for (const double softcap : {0.0, 2.5}) {
      assert_same_function(
          [&](const Tensors& in) {
            const Loss loss = linear_cross_entropy(in[0], in[1], targets,
                                                   {.chunk_tokens = chunk, .softcap = softcap});
            EXPECT_EQ(loss.count, 11);
            return loss.sum;
          },
          [&](const Tensors& in) { return plain(in, targets, softcap); }, {x, w}, 1e-13);
    }
  }
}

TEST(LinearCrossEntropy, ScalesItsGradientsByTheOneItIsGiven) {
  const at::Tensor targets = some_targets(5, 9);
  assert_same_function(
      [&](const Tensors& in) { return linear_cross_entropy(in[0], in[1], targets).sum * -0.25; },
      [&](const Tensors& in) { return plain(in, targets) * -0.25; },
      {values({5, 4}, 0.3), values({9, 4}, 0.7)}, 1e-13);
}

TEST(LinearCrossEntropy, Fp32StaysWithinRounding) {
  const at::Tensor x = values({65, 32}, 0.37, 1);
  const at::Tensor w = values({1003, 32}, 0.53, 1);
  const at::Tensor targets = some_targets(65, 1003);
  const auto fused = [&](at::ScalarType dtype) {
    return value_and_gradients(
        [&](const Tensors& in) { return linear_cross_entropy(in[0], in[1], targets).sum; },
        {x.to(dtype), w.to(dtype)});
  };
  const Tensors fp32 = fused(at::kFloat);
  const Tensors fp64 = fused(at::kDouble);
  // A logit sums 32 products, a gradient at most 1003: sqrt(1003) roundings of 2^-24, times 8.
  for (size_t i = 0; i < 3; ++i) {
    harness::assert_close(fp32[i], fp64[i], 8 * std::sqrt(1003.0) * 0x1p-24, 0, "fp32");
  }
}

TEST(LinearCrossEntropy, ADeviceComputesWhatTheHostComputes) {
  const at::Tensor x = values({3, 5, 16}, 0.37, 2), w = values({301, 16}, 0.53, 1);
  const at::Tensor targets = some_targets(15, 301).view({3, 5});
  targets[1][2] = kIgnoredTarget;
  // A gradient on a device is a sum of products of numbers of `dtype`.
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-13},
                                         {at::kFloat, 4e-6},
                                         {at::kBFloat16, 0x1p-7},
                                         {at::kHalf, 0x1p-10}}) {
    const auto run = [&, dtype = dtype](at::Device device, int64_t chunk, double softcap) {
      const Tensors leaves = {x.to(device, dtype).requires_grad_(),
                              w.to(device, dtype).requires_grad_()};
      const Loss loss = linear_cross_entropy(leaves[0], leaves[1], targets.to(device),
                                             {.chunk_tokens = chunk, .softcap = softcap});
      EXPECT_EQ(loss.count, 14);
      Tensors result = torch::autograd::grad({loss.sum * 0.5}, leaves);
      result.push_back(loss.sum.detach());
      for (at::Tensor& each : result) {
        EXPECT_EQ(each.device(), device);
        each = each.cpu().to(at::kDouble);
      }
      return result;
    };
    for (const double softcap : {0.0, 2.5}) {
      const Tensors host = run(at::kCPU, 0, softcap);
      for (const int64_t chunk : {0, 4}) {
        const Tensors device = run(fake_device(0), chunk, softcap);
        for (size_t i = 0; i < host.size(); ++i) {
          assert_close(device[i], host[i], tolerance, tolerance, std::to_string(i));
        }
      }
    }
  }
}

// Two sums of cross-entropies, one over the other's exponential.
at::Tensor of_two_sums(const at::Tensor& losses_S) {
  const at::Tensor first = losses_S.narrow(0, 0, 7).sum(), second = losses_S.narrow(0, 7, 7).sum();
  return at::log_sigmoid(0.1 * (first - second)).neg();
}
LossOfTokens with_slopes(const at::Tensor& losses_S) {
  const at::AutoGradMode with_graph(true);
  const at::Tensor leaf = losses_S.clone().requires_grad_();
  const at::Tensor value = of_two_sums(leaf);
  return {.value = value.detach(), .slopes_S = torch::autograd::grad({value}, {leaf})[0]};
}

TEST(LinearCrossEntropy, AnotherLossThanTheSumHasItsGradients) {
  const at::Tensor x = values({2, 7, 6}, 0.37, 3), w = values({37, 6}, 0.53, 2);
  const at::Tensor targets = some_targets(14, 37).view({2, 7});
  targets.select(0, 1).narrow(0, 2, 3).fill_(kIgnoredTarget);
  for (const double softcap : {0.0, 2.5}) {
    const auto expected = [&](const Tensors& in) {
      const at::Tensor logits = at::linear(in[0], in[1]).flatten(0, -2);
      const at::Tensor capped = softcap > 0 ? softcap * at::tanh(logits / softcap) : logits;
      return of_two_sums(at::cross_entropy_loss(capped, targets.flatten(), {}, at::Reduction::None,
                                                kIgnoredTarget));
    };
    for (const int64_t chunk : {1, 3, 14, 100}) {
      assert_same_function(
          [&](const Tensors& in) {
            return linear_cross_entropy(
                       in[0], in[1], targets,
                       {.chunk_tokens = chunk, .softcap = softcap, .loss = with_slopes})
                .sum;
          },
          expected, {x, w}, 1e-13);
    }
    Tensors leaves = {x.clone().requires_grad_(), w.clone().requires_grad_()};
    const Tensors gradients = torch::autograd::grad({expected(leaves)}, leaves);
    for_each_axis({2, 3}, [&](const TensorAxis& axis) {
      const at::Tensor own_x = held_rows(x, axis).requires_grad_();
      const at::Tensor own_w = part_of(w, 0, axis).requires_grad_();
      const Loss loss =
          linear_cross_entropy(own_x, own_w, targets,
                               {.chunk_tokens = 4,
                                .axis = axis,
                                .first_row = mesh::split_range(37, axis.size(), axis.rank()).offset,
                                .vocab_size = 37,
                                .softcap = softcap,
                                .loss = with_slopes});
      const Tensors mine = torch::autograd::grad({loss.sum}, {own_x, own_w});
      assert_close(loss.sum.detach(), expected({x, w}), 1e-13, 1e-13, "loss");
      assert_close(mine[0], held_rows(gradients[0], axis), 1e-12, 1e-13, "x");
      assert_close(mine[1], part_of(gradients[1], 0, axis), 1e-12, 1e-13, "w");
    });
    // Without gradients the cross-entropies are computed once, to the same value.
    const at::NoGradGuard guard;
    const CrossEntropyOptions options{.softcap = softcap, .loss = with_slopes};
    assert_close(linear_cross_entropy(x, w, targets, options).sum, expected({x, w}), 1e-13, 1e-13,
                 "evaluated");
  }
}

TEST(LinearCrossEntropy, AnotherLossOnADeviceIsTheHosts) {
  const at::Tensor x = values({14, 6}, 0.37, 3), w = values({37, 6}, 0.53, 2);
  const at::Tensor targets = some_targets(14, 37);
  targets[3] = kIgnoredTarget;
  const auto run = [&](at::Device device) {
    const Tensors leaves = {x.to(device, at::kFloat).requires_grad_(),
                            w.to(device, at::kFloat).requires_grad_()};
    const LossFunction loss = [&](const at::Tensor& losses_S) {
      LossOfTokens found = with_slopes(losses_S.cpu());
      return LossOfTokens{found.value.to(device), found.slopes_S.to(device)};
    };
    const at::Tensor sum =
        linear_cross_entropy(leaves[0], leaves[1], targets.to(device), {.loss = loss}).sum;
    Tensors result = torch::autograd::grad({sum}, leaves);
    for (at::Tensor& each : result) each = each.cpu();
    return result;
  };
  const Tensors host = run(at::kCPU), device = run(fake_device(0));
  for (size_t i = 0; i < 2; ++i) assert_close(device[i], host[i], 4e-6, 4e-6, std::to_string(i));
}

TEST(LinearCrossEntropy, LogitsThatOverflowExpAreFine) {
  const at::Tensor x = at::full({1, 1}, 1000.0, at::kFloat);
  const at::Tensor w = at::tensor({-1.0f, 0.0f, 1.0f}).view({3, 1});
  EXPECT_EQ(linear_cross_entropy(x, w, at::full({1}, 2, at::kLong)).sum.item<double>(), 0);
  EXPECT_EQ(linear_cross_entropy(x, w, at::full({1}, 0, at::kLong)).sum.item<double>(), 2000);
}

TEST(LinearCrossEntropy, NoTokensAndNoCountedTokensSumToZero) {
  for (const int64_t tokens : {0, 3}) {
    const at::Tensor targets = at::full({tokens}, kIgnoredTarget, at::kLong);
    const at::Tensor x = values({tokens, 4}, 0.3).requires_grad_();
    const at::Tensor w = values({9, 4}, 0.7).requires_grad_();
    const Loss loss = linear_cross_entropy(x, w, targets);
    EXPECT_EQ(loss.count, 0);
    EXPECT_EQ(loss.sum.item<double>(), 0);
    const auto grads = torch::autograd::grad({loss.sum}, {x, w});
    harness::assert_same_bits(grads[0], at::zeros_like(x), "x");
    harness::assert_same_bits(grads[1], at::zeros_like(w), "w");
  }
}

TEST(LinearCrossEntropy, ThreadsDoNotChangeBits) {
  const at::Tensor targets = some_targets(300, 501);
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    // Width 1: the products have nothing to sum, so only our own sums could depend on threads.
    return value_and_gradients(
        [&](const Tensors& in) { return linear_cross_entropy(in[0], in[1], targets).sum; },
        {values({300, 1}, 0.37, 1, at::kFloat), values({501, 1}, 0.5, 1, at::kFloat)});
  };
  const int before = at::get_num_threads();
  const Tensors one = run(1);
  const Tensors four = run(4);
  at::set_num_threads(before);
  harness::assert_same_bits(four[0], one[0], "loss");
}

TEST(LinearCrossEntropy, ATargetOutsideTheVocabularyIsTheUsersError) {
  const at::Tensor x = values({3, 4}, 0.3);
  const at::Tensor w = values({9, 4}, 0.7);
  for (const int64_t bad : {int64_t{9}, int64_t{-1}}) {
    const at::Tensor targets = at::zeros({3}, at::kLong);
    targets[1] = bad;
    EXPECT_THROW(linear_cross_entropy(x, w, targets), ConfigError);
  }
}

TEST(LinearCrossEntropy, ASplitVocabularyHasTheSameLossOnEveryRankAndItsRowsGradients) {
  const int64_t vocab = 23;
  const at::Tensor x = values({2, 7, 6}, 0.37, 3), w = values({vocab, 6}, 0.53, 2);
  const at::Tensor targets = some_targets(14, vocab).view({2, 7});
  targets.select(0, 1).narrow(0, 2, 3).fill_(kIgnoredTarget);
  for (const double softcap : {0.0, 2.5}) {
    Tensors leaves = {x.clone().requires_grad_(), w.clone().requires_grad_()};
    const at::Tensor whole = plain(leaves, targets, softcap);
    const Tensors expected = torch::autograd::grad({whole * 0.5}, leaves);
    for (const int64_t chunk : {1, 4, 256}) {
      for_each_axis({1, 2, 3, 4, 5}, [&](const TensorAxis& axis) {
        const at::Tensor own_x = held_rows(x, axis).requires_grad_();
        const at::Tensor own_w = part_of(w, 0, axis).requires_grad_();
        const int64_t first = mesh::split_range(vocab, axis.size(), axis.rank()).offset;
        const Loss loss = linear_cross_entropy(own_x, own_w, targets,
                                               {.chunk_tokens = chunk,
                                                .axis = axis,
                                                .first_row = first,
                                                .vocab_size = vocab,
                                                .softcap = softcap});
        EXPECT_EQ(loss.count, 11);
        at::Tensor of_root = loss.sum.detach().clone();
        axis.group->broadcast(of_root, 0)->wait();
        assert_same_bits(loss.sum.detach(), of_root, "loss");
        const auto grads = torch::autograd::grad({loss.sum * 0.5}, {own_x, own_w});
        assert_close(loss.sum.detach(), whole.detach(), 1e-13, 0, "loss");
        assert_close(grads[0], held_rows(expected[0], axis), 1e-13, 1e-13, "grad x");
        assert_close(grads[1], part_of(expected[1], 0, axis), 1e-13, 1e-13, "grad w");
      });
    }
  }
}

TEST(LinearCrossEntropy, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8;
      const at::Tensor x = held_rows(values({S, D}, 0.3), axis).requires_grad_();
      (void)linear_cross_entropy(x, values({3, D}, 0.5), some_targets(S, 12),
                                 {.axis = axis, .first_row = 3 * group.rank(), .vocab_size = 12});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, 2 * 3 * n / 4 + 3 * S * 24);
    });
  }
}

TEST(LinearCrossEntropy, BackwardTwiceThrows) {
  const at::Tensor w = values({9, 4}, 0.7).requires_grad_();
  const Loss loss = linear_cross_entropy(values({3, 4}, 0.3), w, some_targets(3, 9));
  torch::autograd::grad({loss.sum}, {w}, {}, /*retain_graph=*/true);
  EXPECT_THROW(torch::autograd::grad({loss.sum}, {w}), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
