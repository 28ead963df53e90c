// Your own gradient hook: it decides what the ranks send each other instead of all-reducing
// gradients. Here it is signSGD with majority vote (Bernstein et al. 2018, arXiv:1802.04434). A
// rank sends one bit per element, and every weight moves in the direction that most ranks want.
//
//   build/release/bin/example_04_gradient_hook        three ranks as threads of one process
//
// The library's own hooks (bf16, int8, PowerSGD, top-k) are in trireme/parallel/data/compression.
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/data/ddp.h"

namespace {

namespace parallel = trireme::parallel;

// Replaces each gradient by the majority's signs: -1, 0 or 1.
class MajorityHook : public parallel::GradientHook {
 public:
  int64_t all_reduce(const parallel::GradientBucket& bucket,
                     trireme::comm::Communicator& group) override {
    // Packs eight signs into a byte, over all gradients of the bucket.
    std::vector<at::Tensor> signs;
    for (const at::Tensor& gradient : bucket.gradients) signs.push_back(gradient.ge(0).view(-1));
    at::Tensor bits = at::cat(signs).to(at::kByte);
    const int64_t count = bits.numel();
    bits = at::constant_pad_nd(bits, {0, (8 - count % 8) % 8}).view({-1, 8});
    const at::Tensor weights = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte);
    const at::Tensor mine = (bits * weights).sum(1, /*keepdim=*/false, at::kByte);
    const at::Tensor all = at::empty({group.size(), mine.numel()}, at::kByte);
    group.all_gather(all.unbind(0), mine)->wait();

    const at::Tensor votes = all.unsqueeze(2).bitwise_and(weights).ne(0).sum(0).view(-1);
    const at::Tensor majority = (2 * votes - group.size()).sign();
    int64_t begin = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      gradient.copy_(majority.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
    return (group.size() - 1) * mine.numel();
  }
};

struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(8, 32));
    output = register_module("output", torch::nn::Linear(32, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};

struct Result {
  double first = 0, last = 0;  // this rank's mean squared errors
  double weights = 0;          // sum of the weights, which must be the same on all ranks
};

Result train(trireme::comm::Communicator& group) {
  Net net;
  parallel::DistributedDataParallel ddp(net, group, {.hook = std::make_shared<MajorityHook>()});
  torch::optim::SGD optimizer(net.parameters(), 1e-3);
  at::Generator random = at::detail::createCPUGenerator(1000 + group.rank());

  Result result;
  for (int step = 1; step <= 600; ++step) {
    const at::Tensor x = torch::randn({32, 8}, random);
    const at::Tensor y = x.square().sum(1, /*keepdim=*/true) / 8;
    ddp.begin_step(x.size(0));
    const at::Tensor loss_sum = (net.forward(x) - y).square().sum();
    ddp.backward(loss_sum);
    optimizer.step();
    result.last = loss_sum.item<double>() / 32;
    if (step == 1) result.first = result.last;
    if (group.rank() == 0 && step % 150 == 0) {
      std::printf("step %3d  mean squared error %.4f  %ld bytes of gradients per rank\n", step,
                  result.last, ddp.gradient_bytes());
    }
  }
  for (const at::Tensor& parameter : net.parameters()) {
    result.weights += parameter.sum().item<double>();
  }
  return result;
}

}  // namespace

int main() {
  const auto groups = trireme::comm::make_thread_group(3);
  std::vector<Result> results(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    ranks.emplace_back([&, rank] { results[rank] = train(*groups[rank]); });
  }
  for (std::thread& rank : ranks) rank.join();
  bool is_good = results[0].last < 0.5 * results[0].first;
  for (const Result& result : results) is_good &= result.weights == results[0].weights;
  std::printf("the ranks' weights are %s\n", is_good ? "the same, and better" : "not as expected");
  return is_good ? 0 : 1;
}
