#include "trireme/model/layers/batch_norm.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/gradients.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {
namespace {

using namespace harness;

constexpr int64_t C = 5;
// A mean over n values of size 1 and its gradient differ by their rounding in fp64, times the
// condition 1 / std of the values, which is below 1e3 here.
constexpr double kTolerance = 1e-11;

BatchNorm make_norm(const BatchAxis& axis = {}, at::ScalarType dtype = at::kDouble) {
  BatchNorm norm(C);
  norm->weight.data().copy_(values({C}, 0.9) + 1);
  norm->bias.data().copy_(values({C}, 0.4));
  norm->to(dtype);
  norm->axis = axis;
  return norm;
}

torch::nn::BatchNorm2d torch_norm() {
  torch::nn::BatchNorm2d norm(C);
  norm->weight.data().copy_(values({C}, 0.9) + 1);
  norm->bias.data().copy_(values({C}, 0.4));
  norm->to(at::kDouble);
  return norm;
}

// What training leaves behind.
struct Trace {
  at::Tensor out, grad_x, grad_weight, grad_bias, running_mean, running_var, num_batches;
};

// Two forwards in training, the second with its backward, so that running statistics matter.
template <typename Norm>
Trace train(Norm& norm, const at::Tensor& first, const at::Tensor& second, const at::Tensor& grad) {
  norm->train();
  norm->forward(first);
  const at::Tensor x = second.detach().clone().requires_grad_();
  const at::Tensor out = norm->forward(x);
  out.backward(grad);
  return {out.detach(),       x.grad(),          norm->weight.grad(),      norm->bias.grad(),
          norm->running_mean, norm->running_var, norm->num_batches_tracked};
}

void assert_same_training(const Trace& actual, const Trace& expected) {
  const auto close = [](const at::Tensor& a, const at::Tensor& b, const char* what) {
    assert_close(a, b, kTolerance, kTolerance, what);
  };
  close(actual.out, expected.out, "output");
  close(actual.grad_x, expected.grad_x, "gradient of x");
  close(actual.grad_weight, expected.grad_weight, "gradient of weight");
  close(actual.grad_bias, expected.grad_bias, "gradient of bias");
  close(actual.running_mean, expected.running_mean, "running mean");
  close(actual.running_var, expected.running_var, "running variance");
  EXPECT_TRUE(actual.num_batches.equal(expected.num_batches));
}

at::Tensor images(int64_t B, double start) { return values({B, C, 3, 2}, start, 2) + 0.3; }

TEST(BatchNorm, EqualsTorchOnOneRank) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    BatchNorm norm = make_norm();
    torch::nn::BatchNorm2d plain = torch_norm();
    const auto in = [format](const at::Tensor& x) { return x.contiguous(format); };
    const at::Tensor first = in(images(4, 0.1)), second = in(images(4, 0.7));
    const at::Tensor grad = in(values({4, C, 3, 2}, 0.5));
    assert_same_training(train(norm, first, second, grad), train(plain, first, second, grad));
    norm->eval();
    plain->eval();
    assert_close(norm->forward(first), plain->forward(first), kTolerance, kTolerance, "evaluation");
  }
}

// The samples are spread as `sizes`, which may leave a rank without any.
void check_spread(const std::vector<int64_t>& sizes) {
  int64_t B = 0;
  for (const int64_t size : sizes) B += size;
  const at::Tensor first = images(B, 0.1), second = images(B, 0.7);
  const at::Tensor grad = values({B, C, 3, 2}, 0.5);
  torch::nn::BatchNorm2d plain = torch_norm();
  const Trace whole = train(plain, first, second, grad);
  std::vector<Trace> traces(sizes.size());
  run_ranks(static_cast<int>(sizes.size()), [&](comm::Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto own = [&](const at::Tensor& x) {
      int64_t begin = 0;
      for (size_t r = 0; r < rank; ++r) begin += sizes[r];
      return x.narrow(0, begin, sizes[rank]);
    };
    BatchNorm norm = make_norm({.group = &group});
    Trace& trace = traces[rank] = train(norm, own(first), own(second), own(grad));
    assert_close(trace.out, own(whole.out), kTolerance, kTolerance, "output");
    assert_close(trace.grad_x, own(whole.grad_x), kTolerance, kTolerance, "gradient of x");
    // Each rank has the part of its own samples; data parallelism sums the parts.
    group.all_reduce(trace.grad_weight)->wait();
    group.all_reduce(trace.grad_bias)->wait();
    trace.out = whole.out;
    trace.grad_x = whole.grad_x;
    assert_same_training(trace, whole);
  });
  for (const Trace& trace : traces) {
    assert_same_bits(trace.running_mean, traces[0].running_mean, "running mean");
    assert_same_bits(trace.running_var, traces[0].running_var, "running variance");
  }
}

TEST(BatchNorm, SharesItsStatisticsWithTheRanksOfTheAxis) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {4}, {2, 2}, {3, 1}, {0, 4}, {1, 2, 1}, {2, 0, 3}, {1, 1, 1, 2}, {0, 3, 0, 1}}) {
    check_spread(sizes);
  }
}

TEST(BatchNorm, TakesRowsAndSequencesToo) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{6, C}, {6, C, 4}}) {
    BatchNorm norm = make_norm();
    const at::Tensor x = values(shape, 0.2, 2);
    std::vector<int64_t> others = {0};
    for (int64_t d = 2; d < x.dim(); ++d) others.push_back(d);
    const at::Tensor mean = x.mean(others, true);
    const at::Tensor var = (x - mean).square().mean(others, true);
    std::vector<int64_t> side(shape.size(), 1);
    side[1] = C;
    const at::Tensor expected =
        (x - mean) * at::rsqrt(var + 1e-5) * norm->weight.view(side) + norm->bias.view(side);
    assert_close(norm->forward(x), expected, kTolerance, kTolerance, "rows");
  }
}

TEST(BatchNorm, AForwardWithoutSamplesChangesNothing) {
  BatchNorm norm = make_norm();
  const at::Tensor x = images(0, 0.1).requires_grad_();
  const at::Tensor out = norm->forward(x);
  EXPECT_EQ(out.sizes(), x.sizes());
  out.sum().backward();
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_TRUE(norm->running_mean.equal(at::zeros({C}, at::kDouble)));
  EXPECT_TRUE(norm->running_var.equal(at::ones({C}, at::kDouble)));
  EXPECT_TRUE(norm->weight.grad().equal(at::zeros({C}, at::kDouble)));
}

TEST(BatchNorm, StatisticsStayInFp32) {
  BatchNorm norm = make_norm({}, at::kBFloat16);
  EXPECT_EQ(norm->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(norm->running_var.scalar_type(), at::kFloat);
  const at::Tensor x = images(8, 0.1).to(at::kBFloat16).requires_grad_();
  const at::Tensor out = norm->forward(x);
  out.sum().backward();
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_EQ(norm->weight.grad().scalar_type(), at::kBFloat16);
  const at::Tensor mean = x.detach().to(at::kDouble).mean({0, 2, 3});
  // The share 0.1 of a mean that fp32 holds.
  assert_close(norm->running_mean.to(at::kDouble), 0.1 * mean, 1e-6, 1e-7, "running mean");
}

TEST(BatchNorm, RecomputationCountsAForwardOnce) {
  BatchNorm plain = make_norm(), again = make_norm();
  const at::Tensor x = images(4, 0.1);
  const at::Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
  plain->forward(a).square().sum().backward();
  recompute([&](const std::vector<at::Tensor>& in) { return again->forward(in[0]); }, {b})
      .square()
      .sum()
      .backward();
  assert_same_bits(b.grad(), a.grad(), "gradient");
  assert_same_bits(again->running_mean, plain->running_mean, "running mean");
  assert_same_bits(again->running_var, plain->running_var, "running variance");
  EXPECT_EQ(again->num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNorm, SendsWhatItSays) {
  run_ranks(3, [](comm::Communicator& group) {
    CountingCommunicator counting(group);
    BatchNorm norm = make_norm({.group = &counting});
    const at::Tensor x = images(2, 0.1 + group.rank()).requires_grad_();
    norm->forward(x).sum().backward();
    const Ledger& ledger = counting.ledger();
    EXPECT_EQ(ledger.of(group.name(), "all_gather"), (Traffic{1, 2 * (2 * C + 1) * 8}));
    EXPECT_EQ(ledger.of(group.name(), "all_reduce"), (Traffic{1, 2 * 2 * (2 * C * 8) / 3}));
    norm->eval();
    norm->forward(x);
    EXPECT_EQ(ledger.of(group.name()).calls, 2);
  });
}

TEST(BatchNorm, RefusesWhatItCannotNormalise) {
  BatchNorm norm = make_norm();
  EXPECT_EQ(message_of<ConfigError>([&] {
              norm->forward(at::zeros({2, 3}));
            }),
            "a batch norm of 5 channels got a tensor of [2, 3]; expected [B, 5, ...]");
  const std::string one_value = message_of<ConfigError>([&] {
    norm->forward(at::zeros({1, C}, at::kDouble));
  });
  for (const char* remedy : {"raise train.micro_batch", "data.last_batch = \"keep\""}) {
    EXPECT_NE(one_value.find(remedy), std::string::npos) << one_value;
  }
  EXPECT_THROW(BatchNorm(0), ConfigError);
}

}  // namespace
}  // namespace trireme::model
