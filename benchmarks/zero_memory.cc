// Measures the model-state memory of each ZeRO stage beside the formulas of its paper: bf16 weights
// and gradients, fp32 masters and AdamW moments, ranks as threads. Prints a table. Exits with 1 if
// the states of any row are more than 5 % off.
//
// States are summed over the tensors that hold them. The last column shows what libtorch's CPU
// allocator has handed out to the rank and not got back after three steps.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, table 1
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include "tests/harness/live_bytes.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/model/model.h"
#include "trireme/parallel/data/ddp.h"
#include "trireme/train/optimizer/optimizer.h"

namespace {

using namespace trireme;

struct Measurement {
  double parameters = 0;  // bytes per parameter, as all fields
  double gradients = 0;
  double optimizer = 0;
  double buffers = 0;    // gathered parameters and gradients in transit, at their peak
  double allocated = 0;  // counted by the allocator, buffers included
  double states() const { return parameters + gradients + optimizer; }
};

Measurement measure_rank(comm::Communicator& group, int zero) {
  const model::ModelConfig config{.family = "llama",
                                  .layers = 6,
                                  .width = 256,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .ffn_width = 640,
                                  .sequence_length = 64,
                                  .vocab_size = 4096};
  const auto counter = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  auto model = model::make_model(config, 1, at::kBFloat16);
  parallel::DistributedDataParallel ddp(model->module(), group,
                                        {.zero = zero,
                                         .units = model->units(),
                                         .bucket_bytes = 256 << 10});  // small beside the model
  model->run_units_with([&](size_t unit, const at::Tensor& x, const auto& forward) {
    return ddp.run(unit, x, forward);
  });
  train::Optimizer optimizer(ddp.shards(), {});
  const at::Tensor tokens = at::arange(32).remainder(4096).view({1, 32});
  for (int step = 0; step < 3; ++step) {
    ddp.begin_step(32);
    ddp.backward(model->loss(tokens, tokens).sum);
    optimizer.step(1e-3);
    ddp.end_step();
  }
  const auto count = static_cast<double>(model::num_parameters(config));
  const auto per_parameter = [&](int64_t bytes) { return static_cast<double>(bytes) / count; };
  const parallel::DataParallelMemory memory = ddp.memory();
  return {.parameters = per_parameter(memory.parameters),
          .gradients = per_parameter(memory.gradients),
          .optimizer = per_parameter(optimizer.state_bytes()),
          .buffers = per_parameter(memory.peak_gathered + memory.peak_in_transit),
          .allocated = per_parameter(counter->bytes())};
}

// The measurement of the rank that holds the most.
Measurement measure(int num_ranks, int zero) {
  const auto groups = comm::make_thread_group(num_ranks);
  std::mutex mutex;
  Measurement most;
  std::vector<std::thread> ranks;
  for (const auto& group : groups) {
    ranks.emplace_back([&, rank = group.get()] {
      const Measurement mine = measure_rank(*rank, zero);
      const std::lock_guard lock(mutex);
      if (mine.states() > most.states()) most = mine;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return most;
}

double formula(int zero, double n) {
  const double bytes[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
  return bytes[zero];
}

}  // namespace

int main() {
  at::set_num_threads(1);
  constexpr double kTolerance = 0.05;
  bool fits = true;
  std::printf("bytes per parameter on the rank that holds the most\n");
  std::printf(
      "| ranks | zero | weights | gradients | optimizer | states | formula | off | buffers | "
      "allocated |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int ranks : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      const Measurement m = measure(ranks, zero);
      const double expected = formula(zero, ranks);
      const double off = m.states() / expected - 1;
      fits &= std::abs(off) <= kTolerance;
      std::printf("| %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %+.1f %% | %.2f | %.2f |\n",
                  ranks, zero, m.parameters, m.gradients, m.optimizer, m.states(), expected,
                  100 * off, m.buffers, m.allocated);
      std::fflush(stdout);
    }
  }
  return fits ? 0 : 1;
}
