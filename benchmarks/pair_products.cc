// Measures the hand-written parts of a DLRM beside what libtorch has for them, on one thread:
//   pair_products_benchmark [batch] [rounds]
//   products   pair_products() beside bmm of all pairs and a choice of the triangle, with 26 tables
//              and dense features of width 64
//   layer      fused_linear() with ReLU beside at::linear and at::relu, for the layers of the DLRM
//              of benchmarks/dlrm_vs_torchrec.py
// The two take turns. Prints medians of forward and backward, and the rate of all three products.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/numbers.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/layers/pair_products.h"

namespace {

using namespace trireme;

constexpr int64_t kTables = 26, kWidth = 64;
constexpr int kWarmRounds = 3;

using Forward = std::function<at::Tensor()>;

struct Way {
  Forward forward;
  std::vector<double> forward_ms{}, backward_ms{};
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void run(Way& way, const std::vector<at::Tensor>& inputs, bool counts) {
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor out = way.forward();
  const double forward_ms = ms_since(start);
  const at::Tensor grad = at::ones_like(out);
  const auto middle = std::chrono::steady_clock::now();
  const auto gradients = torch::autograd::grad({out}, inputs, {grad});
  if (!counts) return;
  way.forward_ms.push_back(forward_ms);
  way.backward_ms.push_back(ms_since(middle));
}

// flops: of the forward
void compare(const char* what, double flops, int rounds, const std::vector<at::Tensor>& inputs,
             const Forward& libtorch, const Forward& ours) {
  Way ways[] = {{libtorch}, {ours}};
  for (int i = 0; i < kWarmRounds + rounds; ++i) {
    for (Way& way : ways) run(way, inputs, i >= kWarmRounds);
  }
  const char* const names[] = {"libtorch", "trireme"};
  for (int i = 0; i < 2; ++i) {
    const double forward_ms = median(ways[i].forward_ms), backward_ms = median(ways[i].backward_ms);
    std::printf("%-24s %-9s forward %7.3f ms, backward %7.3f ms, %6.1f GFLOP/s\n", what, names[i],
                forward_ms, backward_ms, 3e-6 * flops / (forward_ms + backward_ms));
  }
}

at::Tensor plain_products(const at::Tensor& dense, const at::Tensor& embedded) {
  constexpr int64_t N = kTables + 1;
  const at::Tensor x = at::cat({dense, embedded}, 1).view({-1, N, kWidth});
  const at::Tensor places = at::tril_indices(N, N, -1);
  const at::Tensor products = at::bmm(x, x.transpose(1, 2)).flatten(1);
  return at::cat({dense, products.index_select(1, places[0] * N + places[1])}, 1);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t B = argc > 1 ? std::atoll(argv[1]) : 2048;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 31;
  at::set_num_threads(1);
  const at::Tensor dense = at::randn({B, kWidth}).requires_grad_();
  const at::Tensor embedded = at::randn({B, kTables * kWidth}).requires_grad_();
  const double pairs = static_cast<double>(kTables * (kTables + 1) / 2);
  compare(
      "products", 2 * pairs * kWidth * static_cast<double>(B), rounds, {dense, embedded},
      [&] { return plain_products(dense, embedded); },
      [&] { return tasks::pair_products(dense, embedded, kWidth); });
  for (const auto& [in, out] : {std::pair{13, 512}, {512, 256}, {256, 64}, {415, 512}, {256, 1}}) {
    const at::Tensor x = at::randn({B, in}).requires_grad_();
    const at::Tensor weight = at::randn({out, in}).requires_grad_();
    const at::Tensor bias = at::randn({out}).requires_grad_();
    char what[32];
    std::snprintf(what, sizeof(what), "layer %d to %d", in, out);
    compare(
        what, 2.0 * in * out * static_cast<double>(B), rounds, {x, weight, bias},
        [&] { return at::relu(at::linear(x, weight, bias)); },
        [&] { return tasks::fused_linear(x, weight, bias, tasks::Activation::kRelu); });
  }
}
