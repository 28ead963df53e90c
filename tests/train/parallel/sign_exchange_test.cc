// The 1-bit optimizers with DDP and ZeRO: hook, rule and states together, without a trainer.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/ddp.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/optimizer/sign_schedule.h"
#include "trireme/train/parallel/gradient_compression.h"

namespace trireme::train {
namespace {

using SignedWeights = std::map<std::string, at::Tensor>;

struct SignedNet : torch::nn::Module {
  explicit SignedNet(at::ScalarType dtype) {
    const auto wave = [&](at::IntArrayRef shape) {
      const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
      return ((index * 1.7).sin() * 0.2).to(dtype);
    };
    w1 = register_parameter("w1", wave({24, 40}));
    bias = register_parameter("bias", wave({40}));
    w2 = register_parameter("w2", wave({40, 7}));
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y,
                  parallel::DistributedDataParallel& ddp) {
    const at::Tensor h =
        ddp.run(0, x, [&](const at::Tensor& x) { return at::tanh(x.mm(w1) + bias); });
    return (h.mm(w2) - y).to(at::kFloat).square().sum();
  }
  std::vector<parallel::Unit> units() { return {{"first", {w1, bias}}}; }
  at::Tensor w1, bias, w2;
};

struct SignedLayout {
  int zero = 0;
  int64_t bucket_bytes = 1 << 20;
  at::ScalarType dtype = at::kFloat;
  int resumed_after = 0;  // updates after which new objects go on; 0: never
};

// What one rank trains with.
struct SignedRun {
  SignedRun(comm::Communicator& world, const RunConfig& config, const SignedLayout& layout)
      : net(layout.dtype) {
    hook = make_gradient_hook(
        config, {.num_updates = [this] { return optimizer->num_steps(); },
                 .find_momentum =
                     [this](const std::string& parameter, const at::Tensor& momentum) {
                       return copy_momentum(*optimizer, parameter, momentum);
                     }});
    ddp = std::make_unique<parallel::DistributedDataParallel>(
        net, world,
        parallel::DdpOptions{.zero = layout.zero,
                             .units = net.units(),
                             .bucket_bytes = layout.bucket_bytes,
                             .whole_parameters = needs_whole_parameters(config.optimizer),
                             .hook = hook});
    optimizer = std::make_unique<Optimizer>(ddp->shards(), config.optimizer);
  }

  // Goes on from another of the same layout.
  void take(const SignedRun& other) {
    const auto copy_all = [](const auto& to, const auto& from) {
      for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    };
    const auto tensors_of = [](const SignedRun& run) {
      std::vector<at::Tensor> tensors;
      for (const parallel::Shard& shard : run.ddp->shards())
        tensors.push_back(shard.weights.detach());
      for (const checkpoint::Entry& entry : run.optimizer->state()) tensors.push_back(entry.local);
      for (const parallel::HookState& state : run.hook->state()) tensors.push_back(state.tensor);
      return tensors;
    };
    copy_all(tensors_of(*this), tensors_of(other));
    optimizer->set_num_steps(other.optimizer->num_steps());
    ddp->spread_weights();
  }

  // Returns the loss of this rank's samples.
  double step(int number, int rank) {
    ddp->begin_step(8, 2);
    double sum = 0;
    for (int i = 0; i < 2; ++i) {
      const double seed = 0.3 * (number % 4) + 1.1 * rank + 2.3 * i;
      const auto numbers = [&](int64_t rows, int64_t columns, double rate) {
        const at::Tensor index = at::arange(rows * columns, at::kDouble);
        return (index * rate + seed).sin().view({rows, columns}).to(net.w1.scalar_type());
      };
      const at::Tensor loss = net.loss(numbers(8, 24, 1.3), numbers(8, 7, 0.7), *ddp);
      sum += loss.item<double>();
      ddp->backward(loss);
    }
    optimizer->step(3e-3);
    ddp->end_step();
    return sum;
  }

  SignedNet net;
  std::shared_ptr<parallel::GradientHook> hook;
  std::unique_ptr<parallel::DistributedDataParallel> ddp;
  std::unique_ptr<Optimizer> optimizer;
};

struct Trained {
  SignedWeights weights;
  std::vector<double> losses;  // of rank 0
};

Trained train_signed(int ranks, const OptimizerConfig& optimizer, const SignedLayout& layout,
                     int num_steps = 7) {
  RunConfig config;
  config.optimizer = optimizer;
  Trained trained;
  std::mutex mutex;
  harness::run_ranks(ranks, [&](comm::Communicator& world) {
    auto run = std::make_unique<SignedRun>(world, config, layout);
    std::vector<double> losses;
    for (int step = 0; step < num_steps; ++step) {
      if (layout.resumed_after > 0 && step == layout.resumed_after) {
        auto next = std::make_unique<SignedRun>(world, config, layout);
        next->take(*run);
        run = std::move(next);
      }
      losses.push_back(run->step(step, world.rank()));
    }
    run->ddp->gather_parameters();
    const std::lock_guard lock(mutex);
    for (const auto& item : run->net.named_parameters()) {
      const at::Tensor mine = item.value().detach().clone();
      const auto [found, is_first] = trained.weights.emplace(item.key(), mine);
      if (!is_first) harness::assert_same_bits(mine, found->second, item.key());
    }
    if (world.rank() == 0) trained.losses = losses;
  });
  return trained;
}

void expect_same_weights(const Trained& actual, const Trained& expected) {
  for (const auto& [name, weights] : expected.weights) {
    harness::assert_same_bits(actual.weights.at(name), weights, name);
  }
}

OptimizerConfig signed_optimizer(const char* name) {
  return {.name = name, .freeze_step = 3, .variance_updates = 1};
}

TEST(SignExchange, EveryStageAndSizeOfBucketsHasTheBitsOfDdp) {
  for (const char* name : {"onebit-adam", "onebit-lamb", "zero-one-adam"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int ranks : {2, 3}) {
        const Trained ddp = train_signed(ranks, signed_optimizer(name), {.dtype = dtype});
        for (const int zero : {0, 1, 2, 3}) {
          SCOPED_TRACE(concat(name, " ", dtype, ", ", ranks, " ranks, stage ", zero));
          expect_same_weights(train_signed(ranks, signed_optimizer(name),
                                           {.zero = zero, .bucket_bytes = 1000, .dtype = dtype}),
                              ddp);
        }
      }
    }
  }
}

TEST(SignExchange, WhoGoesOnFindsTheMomentumInTheStates) {
  for (const char* name : {"onebit-adam", "onebit-lamb", "zero-one-adam"}) {
    for (const int zero : {0, 1, 3}) {
      const Trained whole = train_signed(3, signed_optimizer(name), {.zero = zero});
      for (const int resumed_after : {2, 3, 5}) {
        SCOPED_TRACE(concat(name, ", stage ", zero, ", after ", resumed_after));
        expect_same_weights(
            train_signed(3, signed_optimizer(name), {.zero = zero, .resumed_after = resumed_after}),
            whole);
      }
    }
  }
}

TEST(SignExchange, AFreezeThatNeverComesHasTheBitsOfAdamW) {
  OptimizerConfig never = signed_optimizer("onebit-adam");
  never.freeze_step = 100;
  for (const int zero : {0, 2, 3}) {
    expect_same_weights(train_signed(3, never, {.zero = zero}),
                        train_signed(3, {.name = "adamw"}, {.zero = zero}));
  }
}

// The first and the last step have the same samples.
TEST(SignExchange, TheLossFallsAsWithoutSigns) {
  for (const auto& [name, plain] :
       {std::pair("onebit-adam", "adamw"), {"onebit-lamb", "lamb"}, {"zero-one-adam", "adamw"}}) {
    OptimizerConfig config = signed_optimizer(name);
    config.freeze_step = 12;
    config.variance_updates = 6;
    const auto with_signs = train_signed(2, config, {}, /*num_steps=*/61).losses;
    const auto without = train_signed(2, {.name = plain}, {}, /*num_steps=*/61).losses;
    const double learned = without.front() - without.back();
    EXPECT_EQ(with_signs.front(), without.front()) << name;
    EXPECT_GT(learned, 2) << name;
    EXPECT_NEAR(with_signs.back(), without.back(), 0.1 * learned) << name;
    EXPECT_NE(with_signs.back(), without.back()) << name;
  }
}

}  // namespace
}  // namespace trireme::train
