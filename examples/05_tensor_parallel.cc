// Tensor parallelism on your own layers: three ranks share the hidden units of a perceptron
// unevenly. Each rank holds some rows of the first matrix and the same columns of the second. With
// one sum over the ranks in forward and one in backward, the result is that of one rank.
//
//   build/release/bin/example_05_tensor_parallel        three ranks as threads of one process
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace {

using trireme::parallel::TensorAxis;

constexpr int64_t kWidth = 8;
constexpr int64_t kHidden = 32;  // not a multiple of three ranks

// Draws the whole tensor as one rank would, and returns this rank's rows or columns. Every layout
// therefore starts from the same model.
at::Tensor draw(at::IntArrayRef shape, uint64_t seed, int64_t dim, const TensorAxis& axis) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  const at::Tensor whole =
      torch::randn(shape, random) / std::sqrt(static_cast<double>(shape.back()));
  const auto part = trireme::mesh::split_range(whole.size(dim), axis.size(), axis.rank());
  return whole.narrow(dim, part.offset, part.size).clone();
}

struct Perceptron : torch::nn::Module {
  explicit Perceptron(const TensorAxis& axis) : axis(axis) {
    up = register_parameter("up", draw({kHidden, kWidth}, 1, 0, axis));           // [F/p, D]
    bias = register_parameter("bias", draw({kHidden, 1}, 2, 0, axis).flatten());  // [F/p]
    down = register_parameter("down", draw({1, kHidden}, 3, 1, axis));            // [1, F/p]
  }
  // Shapes: x [B, D], the same on every rank -> [B, 1], the same on every rank
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden =
        trireme::parallel::column_linear(x, {{up, bias}}, {x.size(0)}, axis)[0];
    return trireme::parallel::row_linear(torch::tanh(hidden), {down}, /*residual=*/{}, axis);
  }
  TensorAxis axis;
  at::Tensor up, bias, down;
};

// Trains one rank. Returns the last loss.
double train(trireme::comm::Communicator& group) {
  Perceptron net({.group = &group});
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  at::Generator random = at::detail::createCPUGenerator(1000);  // the same samples on every rank
  double loss = 0;
  for (int step = 1; step <= 200; ++step) {
    const at::Tensor x = torch::randn({64, kWidth}, random);
    const at::Tensor y = x.square().sum(1, /*keepdim=*/true) / 8;
    optimizer.zero_grad();
    const at::Tensor mean = (net.forward(x) - y).square().mean();
    mean.backward();
    optimizer.step();
    loss = mean.item<double>();
    if (group.rank() == 0 && step % 50 == 0) {
      std::printf("step %3d  %ld of %ld hidden units here  mean squared error %.6f\n", step,
                  net.up.size(0), kHidden, loss);
    }
  }
  return loss;
}

std::vector<double> train_on(int num_ranks) {
  const auto groups = trireme::comm::make_thread_group(num_ranks);
  std::vector<double> losses(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    ranks.emplace_back([&, rank] { losses[rank] = train(*groups[rank]); });
  }
  for (std::thread& rank : ranks) rank.join();
  return losses;
}

}  // namespace

int main() {
  const double alone = train_on(1).front();
  const std::vector<double> shared = train_on(3);
  std::printf("one rank ends at %.9f, three at %.9f\n", alone, shared.front());
  // Two hundred steps in fp32 with sums in another order: a few thousand roundings of 6e-8.
  const bool is_close = std::abs(alone - shared.front()) < 1e-3 * alone;
  return is_close && shared[0] == shared[1] && shared[1] == shared[2] ? 0 : 1;
}
