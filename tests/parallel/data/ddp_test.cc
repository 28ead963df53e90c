#include "trireme/parallel/data/ddp.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/base/gradient_place.h"

namespace trireme::parallel {
namespace {

using Gradients = std::map<std::string, at::Tensor>;

// x w, whose gradient of w is written to where it is gathered.
struct PlacedProduct : torch::autograd::Function<PlacedProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& w) {
    ctx->save_for_backward({x, w});
    return x.mm(w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    at::Tensor grad_w = empty_gradient(saved[1]);
    at::mm_out(grad_w, saved[0].t(), grads[0]);
    return {grads[0].mm(saved[1].t()), grad_w};
  }
};

// A small network with everything that is awkward: a weight used twice, one that a step may not
// use, a frozen one, and two dtypes.
struct Net : torch::nn::Module {
  explicit Net(uint64_t seed = 0) {
    const auto weight = [&](const char* name, at::IntArrayRef shape, bool trained = true,
                            at::ScalarType dtype = at::kDouble) {
      const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
      const at::Tensor value = (index * 1.7 + static_cast<double>(seed)).sin() * 0.5;
      return register_parameter(name, value.to(dtype), trained);
    };
    first = weight("first", {6, 5});
    shared = weight("shared", {6, 6});
    frozen = weight("frozen", {6}, false);
    rarely = weight("rarely", {6});
    last = weight("last", {6, 1});
    single = weight("single", {5, 3}, true, at::kFloat);
  }
  // The loss's terms; the fp32 part is apart, so that its rounding reaches no fp64 gradient.
  at::Tensor forward(const at::Tensor& x, bool use_rarely) {
    at::Tensor y = at::tanh(x.mm(first.t())) * frozen;
    y = PlacedProduct::apply(at::tanh(PlacedProduct::apply(y, shared)), shared);
    if (use_rarely) y = y * rarely;
    const at::Tensor z = x.to(at::kFloat).mm(single);
    return PlacedProduct::apply(y, last).square().sum() + z.square().sum().to(at::kDouble);
  }
  at::Tensor first, shared, frozen, rarely, last, single;
};

// Sample n of the data, the same wherever it is computed.
at::Tensor samples(int64_t begin, int64_t end) {
  return (at::arange(begin * 5, end * 5, at::kDouble) * 0.37).cos().view({end - begin, 5});
}

at::Tensor loss_of(Net& net, int64_t begin, int64_t end, bool use_rarely = true) {
  return net.forward(samples(begin, end), use_rarely);
}

Gradients gradients_of(Net& net) {
  Gradients gradients;
  for (const auto& item : net.named_parameters()) {
    if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
  }
  return gradients;
}

// The mean over all samples on one rank, without any of our machinery.
Gradients oracle(int64_t num_samples, bool use_rarely = true) {
  Net net;
  (loss_of(net, 0, num_samples, use_rarely) / static_cast<double>(num_samples)).backward();
  return gradients_of(net);
}

// Rank r has counts[r] samples, in microbatches of at most two.
Gradients train_step(comm::Communicator& group, const std::vector<int64_t>& counts,
                     DdpOptions options, bool use_rarely = true) {
  Net net(group.rank());  // other weights on each rank: DDP gives all those of rank 0
  DistributedDataParallel ddp(net, group, options);
  int64_t begin = 0;
  for (int rank = 0; rank < group.rank(); ++rank) begin += counts[rank];
  const int64_t count = counts[group.rank()];
  constexpr int64_t kMicrobatches = 3;
  int64_t total = 0;
  for (const int64_t other : counts) total += other;
  EXPECT_EQ(ddp.begin_step(count, kMicrobatches), total);
  for (int64_t i = 0; i < kMicrobatches; ++i) {
    ddp.backward(loss_of(net, begin + count * i / kMicrobatches,
                         begin + count * (i + 1) / kMicrobatches, use_rarely));
  }
  return gradients_of(net);
}

// Sums of 11 terms in another order, each through a few products: some tens of the unit roundoff,
// 1e-16 in fp64 and 6e-8 in fp32.
void expect_close(const Gradients& actual, const Gradients& expected) {
  for (const auto& [name, gradient] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const bool is_fp32 = gradient.scalar_type() == at::kFloat;
    harness::assert_close(actual.at(name), gradient, is_fp32 ? 2e-6 : 1e-14, 0, name);
  }
}

TEST(DistributedDataParallel, GradientsAreThoseOfTheGlobalMeanHoweverUnevenTheSamples) {
  const std::vector<std::vector<int64_t>> worlds = {{11},    {6, 5},    {1, 10},
                                                    {0, 11}, {4, 0, 7}, {2, 3, 5, 1}};
  const Gradients expected = oracle(11);
  for (const auto& counts : worlds) {
    std::mutex mutex;
    std::vector<Gradients> all;
    harness::run_ranks(static_cast<int>(counts.size()), [&](comm::Communicator& group) {
      const Gradients mine = train_step(group, counts, {});
      const std::lock_guard lock(mutex);
      all.push_back(mine);
    });
    for (const Gradients& mine : all) {
      expect_close(mine, expected);
      harness::assert_same_bits(mine, all.front());
    }
  }
}

TEST(DistributedDataParallel, BitsDoNotDependOnBucketsOverlapOrDelays) {
  const std::vector<int64_t> counts = {4, 3, 4};
  Gradients reference;
  for (const int64_t bucket_bytes : {1, 64, 1 << 10, 1 << 20}) {
    for (const bool overlap : {false, true}) {
      harness::run_ranks(3, [&](comm::Communicator& group) {
        std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() * 7 % 11));
        const Gradients mine =
            train_step(group, counts, {.bucket_bytes = bucket_bytes, .overlap = overlap});
        if (group.rank() != 1) return;
        if (reference.empty()) reference = mine;
        harness::assert_same_bits(mine, reference);
      });
    }
  }
}

TEST(DistributedDataParallel, AParameterThatTheLossDidNotUseHasGradientZero) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    // Used on rank 1 alone.
    Net net;
    DistributedDataParallel ddp(net, group);
    ddp.begin_step(2);
    ddp.backward(loss_of(net, 2 * group.rank(), 2 * group.rank() + 2, group.rank() == 1));
    EXPECT_TRUE(net.rarely.grad().abs().sum().item<double>() > 0);
    // Used on none.
    ddp.begin_step(2);
    ddp.backward(loss_of(net, 0, 2, false));
    harness::assert_same_bits(net.rarely.grad(), at::zeros({6}, at::kDouble), "unused");
    EXPECT_FALSE(net.frozen.grad().defined());
  });
}

TEST(DistributedDataParallel, AccumulationReducesOnceAndTheBytesAreTheContracts) {
  int64_t num_bytes = 0;
  {
    Net net;
    // Each begins at a multiple of 64 bytes.
    for (const at::Tensor& p : net.parameters()) {
      if (p.requires_grad()) num_bytes += (static_cast<int64_t>(p.nbytes()) + 63) / 64 * 64;
    }
  }
  harness::run_ranks(2, [&](comm::Communicator& inner) {
    harness::CountingCommunicator group(inner);
    Net net;
    DistributedDataParallel ddp(net, group, {.bucket_bytes = 1});
    group.ledger().clear();
    ddp.begin_step(4, 2);
    ddp.backward(loss_of(net, 0, 2));
    // Of the whole first microbatch: the count alone, 2 (p - 1) / p * 8 bytes.
    EXPECT_EQ(group.ledger().of(group.name(), "all_reduce").bytes, 8);
    ddp.backward(loss_of(net, 2, 4));
    EXPECT_EQ(group.ledger().of(group.name(), "all_reduce").bytes,
              8 + num_bytes);  // 2 (p - 1) / p is 1 for two ranks
  });
}

TEST(DistributedDataParallel, WeightsReallyMoveAndStayTheSameOnAllRanks) {
  std::mutex mutex;
  std::vector<at::Tensor> finals;
  harness::run_ranks(3, [&](comm::Communicator& group) {
    Net net(group.rank());
    DistributedDataParallel ddp(net, group);
    const at::Tensor before = net.first.detach().clone();
    double first_loss = 0, last_loss = 0;
    for (int step = 0; step < 20; ++step) {
      ddp.begin_step(4);
      const at::Tensor loss = loss_of(net, 4 * group.rank(), 4 * group.rank() + 4);
      ddp.backward(loss);
      const c10::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net.parameters()) {
        if (parameter.grad().defined()) parameter.sub_(parameter.grad() * 0.05);
      }
      last_loss = loss.item<double>();
      if (step == 0) first_loss = last_loss;
    }
    EXPECT_LT(last_loss, first_loss);
    EXPECT_FALSE(before.equal(net.first));
    const std::lock_guard lock(mutex);
    finals.push_back(net.first.detach().clone());
  });
  for (const at::Tensor& weights : finals) harness::assert_same_bits(weights, finals[0], "weights");
}

TEST(DistributedDataParallel, OtherModulesOnOtherRanksAreRefusedOnAllRanks) {
  // Another size; another shape of as many elements; another dtype; frozen instead of trained.
  const std::vector<at::Tensor> others = {at::zeros({7}), at::zeros({3, 2}),
                                          at::zeros({2, 3}, at::kDouble), at::zeros({2, 3})};
  for (size_t i = 0; i < others.size(); ++i) {
    std::atomic<int> refused = 0;
    harness::run_ranks(3, [&](comm::Communicator& group) {
      torch::nn::Module module;
      const bool differs = group.rank() == 2;
      module.register_parameter("w", differs ? others[i].clone() : at::zeros({2, 3}),
                                !(differs && i == 3));
      try {
        DistributedDataParallel ddp(module, group);
      } catch (const ConfigError& error) {
        if (std::string(error.what()).find("rank 2") != std::string::npos) ++refused;
      }
    });
    EXPECT_EQ(refused, 3) << i;
  }
}

TEST(DistributedDataParallel, MisuseAndStepsWithoutTermsAreRefused) {
  harness::run_ranks(1, [](comm::Communicator& group) {
    Net net;
    DistributedDataParallel ddp(net, group);
    EXPECT_THROW(ddp.backward(loss_of(net, 0, 1)), ConfigError);
    EXPECT_THROW(ddp.begin_step(1, 0), ConfigError);
    EXPECT_THROW(ddp.begin_step(0), ConfigError);
    ddp.begin_step(2, 2);
    ddp.backward(loss_of(net, 0, 1));
    EXPECT_THROW(ddp.begin_step(1), ConfigError);
  });
}

TEST(DistributedDataParallel, LeavesTheModuleAloneOnceDestroyed) {
  harness::run_ranks(1, [](comm::Communicator& group) {
    Net net;
    { DistributedDataParallel ddp(net, group); }
    (loss_of(net, 0, 11) / 11.0).backward();
    harness::assert_same_bits(gradients_of(net), oracle(11));
  });
}

TEST(DistributedDataParallel, LeavesNoHookOnAParameterThatWasFrozenMeanwhile) {
  harness::run_ranks(1, [](comm::Communicator& group) {
    Net net;
    std::vector<at::Tensor> trained;
    for (const at::Tensor& parameter : net.parameters()) {
      if (parameter.requires_grad()) trained.push_back(parameter);
    }
    {
      DistributedDataParallel ddp(net, group);
      for (const at::Tensor& parameter : trained) parameter.requires_grad_(false);
    }
    for (const at::Tensor& parameter : trained) parameter.requires_grad_(true);
    (loss_of(net, 0, 11) / 11.0).backward();
    harness::assert_same_bits(gradients_of(net), oracle(11));
  });
}

TEST(DistributedDataParallel, AModuleIsInOneAtATime) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    Net net;
    auto ddp = std::make_unique<DistributedDataParallel>(net, group);
    EXPECT_THROW(DistributedDataParallel(net, group), ConfigError);
    ddp.reset();
    ddp = std::make_unique<DistributedDataParallel>(net, group);
  });
}

}  // namespace
}  // namespace trireme::parallel
