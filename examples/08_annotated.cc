// Your own torch::nn::Module on data x tensor ranks without changing it: say how a few weights, the
// input and the output are split. The rest follows.
//
//   build/release/bin/example_08_annotated        four ranks as threads of one process
//
// The program also trains on one rank, checks that the losses are the same, and prints what the
// split costs: each redistribution with its operator, module and bytes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/spmd/annotate.h"

namespace {

namespace spmd = trireme::spmd;
constexpr int64_t kWidth = 32, kHeads = 4, kTokens = 12, kVocabulary = 50;

struct Block : torch::nn::Module {
  Block() {
    const torch::nn::LayerNormOptions norm({kWidth});
    norm1 = register_module("norm1", torch::nn::LayerNorm(norm));
    norm2 = register_module("norm2", torch::nn::LayerNorm(norm));
    q = register_module("q", torch::nn::Linear(kWidth, kWidth));
    k = register_module("k", torch::nn::Linear(kWidth, kWidth));
    v = register_module("v", torch::nn::Linear(kWidth, kWidth));
    o = register_module("o", torch::nn::Linear(kWidth, kWidth));
    fc1 = register_module("fc1", torch::nn::Linear(kWidth, 4 * kWidth));
    fc2 = register_module("fc2", torch::nn::Linear(4 * kWidth, kWidth));
  }
  static at::Tensor heads(const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2);
  }
  at::Tensor forward(at::Tensor x) {
    const at::Tensor h = norm1(x);
    const at::Tensor a = torch::scaled_dot_product_attention(heads(q(h)), heads(k(h)), heads(v(h)),
                                                             {}, 0, /*is_causal=*/true);
    x = x + o(a.transpose(1, 2).flatten(2));
    return x + fc2(torch::gelu(fc1(norm2(x))));
  }
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr}, fc1{nullptr}, fc2{nullptr};
};

struct Net : torch::nn::Module {
  Net() {
    words = register_module("words", torch::nn::Embedding(kVocabulary, kWidth));
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    head = register_module("head", torch::nn::Linear(kWidth, kVocabulary));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids);
    for (const auto& block : blocks) x = block->forward(x);
    return head(x);
  }
  torch::nn::Embedding words{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear head{nullptr};
};

// The losses of 20 steps.
std::vector<double> train(trireme::comm::Communicator& world, int data, int tensor) {
  const trireme::mesh::DeviceMesh mesh(world, {{"data", data}, {"tensor", tensor}});
  auto net = spmd::annotate(mesh,
                            {.parameters = {{"*.[qkv].*", spmd::split(0, "tensor")},
                                            {"*.fc1.*", spmd::split(0, "tensor")},
                                            {"*.o.weight", spmd::split(1, "tensor")},
                                            {"*.fc2.weight", spmd::split(1, "tensor")}},
                             .inputs = {{"ids", spmd::split(0, "data")}},
                             .seed = 1},
                            [] { return std::make_shared<Net>(); });
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor ids = (torch::arange(6 * kTokens).view({6, kTokens}) * 7 + step) % kVocabulary;
    const at::Tensor logits = net.forward(ids).narrow(1, 0, kTokens - 1);
    const at::Tensor next = ids.narrow(1, 1, kTokens - 1);
    optimizer.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(logits.flatten(0, 1), next.flatten());
    loss.backward();
    optimizer.step();
    losses.push_back(spmd::whole_of(loss).item<double>());
    if (step == 0) net.clear_report();
  }
  if (world.size() > 1 && world.rank() == 0)
    std::printf("%s", spmd::to_table(net.report()).c_str());
  return losses;
}

std::vector<double> train_ranks(int data, int tensor) {
  const auto groups = trireme::comm::make_thread_group(data * tensor);
  std::vector<std::vector<double>> losses(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank)
    ranks.emplace_back([&, rank] { losses[rank] = train(*groups[rank], data, tensor); });
  for (std::thread& rank : ranks) rank.join();
  return losses.front();
}

}  // namespace

int main() {
  const std::vector<double> one = train_ranks(1, 1), four = train_ranks(2, 2);
  double worst = 0;
  for (size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(one[i] - four[i]));
  std::printf("loss %.6f -> %.6f; one rank and four differ by at most %.1e\n", one.front(),
              one.back(), worst);
  return worst < 1e-9 && one.back() < 0.5 * one.front() ? 0 : 1;
}
