// Data parallelism on your own module in ten lines: give every rank different data and let
// DistributedDataParallel sum the gradients while backward runs.
//
//   build/release/bin/example_02_data_parallel        two ranks as threads of one process
//
// To run ranks as processes, replace the thread group with comm::connect_world(comm::world_info())
// and start the program with any launcher that sets torchrun's variables.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/data/ddp.h"

namespace {

struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(8, 32));
    output = register_module("output", torch::nn::Linear(32, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};

// Trains one rank. Returns the sum of its weights, which must be the same on all ranks.
double train(trireme::comm::Communicator& group) {
  Net net;
  trireme::parallel::DistributedDataParallel ddp(net, group);  // takes rank 0's weights
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  at::Generator random = at::detail::createCPUGenerator(1000 + group.rank());

  for (int step = 1; step <= 200; ++step) {
    // Ranks may have different amounts of data. The gradient is that of the mean over all samples.
    const at::Tensor x = torch::randn({32 + 16 * group.rank(), 8}, random);
    const at::Tensor y = x.square().sum(1, /*keepdim=*/true) / 8;
    const int64_t samples = ddp.begin_step(x.size(0));
    at::Tensor loss_sum = (net.forward(x) - y).square().sum();
    ddp.backward(loss_sum);
    optimizer.step();
    if (step % 50 == 0) {
      at::Tensor total = loss_sum.detach();
      group.all_reduce(total)->wait();
      if (group.rank() == 0) {
        std::printf("step %3d  %ld samples  mean squared error %.4f\n", step, samples,
                    total.item<double>() / static_cast<double>(samples));
      }
    }
  }
  double sum = 0;
  for (const at::Tensor& parameter : net.parameters()) sum += parameter.sum().item<double>();
  return sum;
}

}  // namespace

int main() {
  const auto groups = trireme::comm::make_thread_group(2);
  std::vector<double> sums(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    ranks.emplace_back([&, rank] { sums[rank] = train(*groups[rank]); });
  }
  for (std::thread& rank : ranks) rank.join();
  std::printf("weights of both ranks sum to %.9f and %.9f\n", sums[0], sums[1]);
  return sums[0] == sums[1] && std::isfinite(sums[0]) ? 0 : 1;
}
