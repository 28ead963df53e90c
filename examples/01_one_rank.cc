// The smallest Trireme program: any torch::nn::Module on one rank. With more ranks, only the group
// given to DistributedDataParallel changes: see 02_data_parallel.cc.
//
//   build/release/bin/example_01_one_rank
#include <cstdio>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/data/ddp.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);

  const auto group = trireme::comm::make_thread_group(1);
  trireme::parallel::DistributedDataParallel ddp(*model, *group.front());

  double first = 0;
  double last = 0;
  for (int step = 1; step <= 200; ++step) {
    const at::Tensor x = torch::randn({64, 8});
    const at::Tensor y = x.square().sum(1, /*keepdim=*/true) / 8;
    ddp.begin_step(x.size(0));
    const at::Tensor loss_sum = (model->forward(x) - y).square().sum();
    ddp.backward(loss_sum);
    optimizer.step();
    last = loss_sum.item<double>() / 64;
    if (step == 1) first = last;
    if (step % 50 == 0) std::printf("step %3d  mean squared error %.4f\n", step, last);
  }
  return last < 0.5 * first ? 0 : 1;
}
