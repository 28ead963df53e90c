// A pipeline of your own modules: three stages on three ranks, with a skip connection from the
// first to the last. Any schedule can run it. Stages name what they read and write, and the
// executor sends it.
//
//   build/release/bin/example_06_pipeline [gpipe|1f1b|zero-bubble]
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/pipeline/run/executor.h"

namespace {

using trireme::comm::Communicator;
using Tensors = std::vector<at::Tensor>;

constexpr int kStages = 3;
constexpr int kMicrobatches = 6;

struct Stage : torch::nn::Module {
  Stage(int64_t in, int64_t out) { linear = register_module("linear", torch::nn::Linear(in, out)); }
  torch::nn::Linear linear{nullptr};
};

// This rank's module. The stages of other ranks are only named.
struct Net {
  explicit Net(int rank) : module(std::make_shared<Stage>(rank == 0 ? 8 : 16, rank == 2 ? 1 : 16)) {
    at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(rank));
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) parameter.normal_(0, 0.3, random);
  }

  std::vector<trireme::parallel::PipelineStage> stages() {
    const auto layer = [this](const at::Tensor& x) { return module->linear(x); };
    return {
        {.name = "encode",
         .inputs = {"x"},
         .outputs = {"encoded"},
         .forward = [=](int64_t, Tensors in) { return Tensors{torch::tanh(layer(in[0]))}; }},
        {.name = "middle",
         .inputs = {"encoded"},
         .outputs = {"deep"},
         .forward = [=](int64_t, Tensors in) { return Tensors{torch::tanh(layer(in[0]))}; }},
        {.name = "decode",
         .inputs = {"encoded", "deep", "y"},  // "encoded" skips the middle
         .outputs = {"loss"},
         .forward =
             [=](int64_t, Tensors in) {
               return Tensors{(layer(in[0] + in[1]) - in[2]).square().sum()};
             }},
    };
  }
  std::shared_ptr<Stage> module;
};

// Trains one rank. Returns the last mean loss on the rank of the last stage.
double train(Communicator& group, const std::string& schedule) {
  Net net(group.rank());
  torch::optim::SGD optimizer(net.module->parameters(), 0.05);
  trireme::parallel::PipelineExecutor pipeline(
      group, net.stages(),
      trireme::parallel::make_schedule(schedule,
                                       {.num_ranks = kStages, .num_microbatches = kMicrobatches}),
      {.fed = {"x", "y"}});
  at::Generator random = at::detail::createCPUGenerator(1000);
  double loss = 0;
  for (int step = 1; step <= 200; ++step) {
    const at::Tensor x = torch::randn({kMicrobatches, 16, 8}, random);
    const at::Tensor y = x.square().sum(2, /*keepdim=*/true) / 8;
    optimizer.zero_grad();
    const auto result =
        pipeline.run([&](const std::string& edge,
                         int64_t microbatch) { return (edge == "x" ? x : y)[microbatch]; },
                     /*seed=*/1.0 / (kMicrobatches * 16));
    optimizer.step();
    const auto found = result.outputs.find("loss");
    if (found == result.outputs.end()) continue;
    loss = torch::stack(found->second).sum().item<double>() / (kMicrobatches * 16);
    if (step % 50 == 0) {
      std::printf("%-12s step %3d  mean squared error %.6f\n", schedule.c_str(), step, loss);
    }
  }
  return loss;
}

double train_with(const std::string& schedule) {
  const auto groups = trireme::comm::make_thread_group(kStages);
  std::vector<double> losses(groups.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    ranks.emplace_back([&, rank] { losses[rank] = train(*groups[rank], schedule); });
  }
  for (std::thread& rank : ranks) rank.join();
  return losses.back();
}

}  // namespace

int main(int argc, char** argv) {
  const double expected = train_with("gpipe");
  const double actual = train_with(argc > 1 ? argv[1] : "1f1b");
  std::printf("a schedule changes when things run, never a bit: %.17g and %.17g\n", expected,
              actual);
  return expected == actual && std::isfinite(expected) ? 0 : 1;
}
