// ZeRO-3 (fully sharded data parallelism) on your own module: name the parts that run as a whole,
// run each through ddp.run(), and give the optimizer ddp.shards(). Every rank then holds 1/N of
// parameters, gradients and optimizer state. A part is whole only while it is used.
//
//   build/release/bin/example_03_fully_sharded        four ranks as threads of one process
//
// The program also trains with zero = 0 (DDP) and checks that all losses have the same bits.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/data/ddp.h"

namespace {

using trireme::parallel::DistributedDataParallel;
using trireme::parallel::RunUnit;
using trireme::parallel::Unit;

constexpr int64_t kWidth = 256;

struct Block : torch::nn::Module {
  Block() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};

struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    }
    head = register_module("head", torch::nn::Linear(kWidth, 1));
  }
  // Each unit is gathered as a whole. The head is in no unit, so it always stays whole.
  std::vector<Unit> units() {
    std::vector<Unit> units;
    for (size_t i = 0; i < blocks.size(); ++i) {
      units.push_back({"block" + std::to_string(i), blocks[i]->parameters()});
    }
    return units;
  }
  at::Tensor forward(at::Tensor x, const RunUnit& run) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      x = run(i, x, [block = blocks[i]](const at::Tensor& x) { return block->forward(x); });
    }
    return head(x);
  }
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear head{nullptr};
};

// Trains one rank. Returns its losses.
std::vector<double> train(Net& net, trireme::comm::Communicator& group, int zero) {
  DistributedDataParallel ddp(net, group, {.zero = zero, .units = net.units()});
  const RunUnit run = [&](size_t unit, const at::Tensor& x, const auto& forward) {
    return ddp.run(unit, x, forward);
  };
  std::vector<at::Tensor> weights;
  for (const auto& shard : ddp.shards()) weights.push_back(shard.weights);  // may be empty here
  torch::optim::SGD optimizer(weights, torch::optim::SGDOptions(1e-3).momentum(0.9));

  at::Generator random = at::detail::createCPUGenerator(1000 + group.rank());
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor x = torch::randn({16, kWidth}, random);
    const at::Tensor y = x.narrow(1, 0, 8).sum(1, /*keepdim=*/true) / 8;
    ddp.begin_step(x.size(0));
    const at::Tensor loss_sum = (net.forward(x, run) - y).square().sum();
    ddp.backward(loss_sum);
    optimizer.step();
    ddp.end_step();  // the other ranks see the new weights
    losses.push_back(loss_sum.item<double>());
  }
  if (group.rank() == 0) {
    const auto memory = ddp.memory();
    std::printf("zero = %d: parameters %4ld KiB, gradients %4ld KiB per rank; loss %.6f -> %.6f\n",
                zero, memory.parameters >> 10, memory.gradients >> 10, losses.front(),
                losses.back());
  }
  return losses;
}

std::vector<std::vector<double>> train_ranks(int zero) {
  const auto groups = trireme::comm::make_thread_group(4);
  torch::manual_seed(1);  // the same initial weights in every run
  std::vector<Net> nets(groups.size());
  std::vector<std::vector<double>> losses(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    ranks.emplace_back([&, rank] { losses[rank] = train(nets[rank], *groups[rank], zero); });
  }
  for (std::thread& rank : ranks) rank.join();
  return losses;
}

}  // namespace

int main() {
  const bool same = train_ranks(/*zero=*/0) == train_ranks(/*zero=*/3);
  std::printf(same ? "every loss has the same bits\n" : "the losses differ\n");
  return same ? 0 : 1;
}
