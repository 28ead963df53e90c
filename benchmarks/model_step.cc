// Times one forward and backward of a model on this process's threads. model_step.py times the same
// model in eager PyTorch.
//   model_step_benchmark [batch] [repeats] [threads] [layers] [width] [ffn] [heads] [vocab] [T]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include "trireme/model/model.h"

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const int64_t batch = argument(1, 8);
  const int64_t repeats = argument(2, 20);
  at::set_num_threads(static_cast<int>(argument(3, 1)));
  trireme::model::ModelConfig config;
  config.layers = argument(4, 6);
  config.width = argument(5, 256);
  config.ffn_width = argument(6, 640);
  config.heads = config.kv_heads = argument(7, 4);
  config.vocab_size = argument(8, 8192);
  config.sequence_length = argument(9, 256);
  const auto model = trireme::model::make_model(config, 1, at::kFloat);
  const at::Tensor tokens_BT = at::arange(batch * config.sequence_length, at::kLong)
                                   .mul_(7919)
                                   .remainder_(config.vocab_size)
                                   .view({batch, -1});
  const at::Tensor targets_BT = tokens_BT.roll(-1, 1);

  std::vector<double> seconds;
  double loss_mean = 0;
  for (int64_t i = 0; i < repeats + 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (at::Tensor& p : model->module().parameters()) p.mutable_grad() = at::Tensor();
    const trireme::model::Loss loss = model->loss(tokens_BT, targets_BT);
    (loss.sum / loss.count).backward();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i >= 2) seconds.push_back(elapsed.count());
    loss_mean = loss.sum.item<double>() / static_cast<double>(loss.count);
  }
  std::sort(seconds.begin(), seconds.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("trireme batch %ld: fastest %.4f s, median %.4f s, loss %.6f, peak %ld MiB\n",
              static_cast<long>(batch), seconds.front(), seconds[seconds.size() / 2], loss_mean,
              usage.ru_maxrss / 1024);
  return 0;
}
