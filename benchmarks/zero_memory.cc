// Measures the model-state memory of each ZeRO stage beside the formulas of its paper: bf16 weights
// and gradients, fp32 masters and AdamW moments, ranks as threads; with one microbatch per step,
// and with four. Prints a table. Exits with 1 if the states of any row are more than 5 % off. The
// gradients of a row are the most that are held between two microbatches.
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

// A row of the table.
struct Case {
  int ranks = 1;
  int zero = 0;
  int64_t microbatches = 1;
  bool rank_first() const { return zero >= 2; }  // as parallel.gradient_order = "auto"
};

Measurement measure_rank(comm::Communicator& group, const Case& row) {
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
                                        {.zero = row.zero,
                                         .units = model->units(),
                                         .bucket_bytes = 256 << 10,  // small beside the model
                                         .rank_first = row.rank_first(),
                                         .add_in_fp32 = row.rank_first() && row.microbatches > 1});
  model->run_units_with([&](size_t unit, const at::Tensor& x, const auto& forward) {
    return ddp.run(unit, x, forward);
  });
  train::Optimizer optimizer(ddp.shards(), {});
  const at::Tensor tokens = at::arange(32).remainder(4096).view({1, 32});
  for (int step = 0; step < 3; ++step) {
    ddp.begin_step(32 * row.microbatches, row.microbatches);
    for (int64_t j = 0; j < row.microbatches; ++j) ddp.backward(model->loss(tokens, tokens).sum);
    optimizer.step(1e-3);
    ddp.end_step();
  }
  const auto count = static_cast<double>(model::num_parameters(config));
  const auto per_parameter = [&](int64_t bytes) { return static_cast<double>(bytes) / count; };
  const parallel::DataParallelMemory memory = ddp.memory(row.microbatches);
  return {.parameters = per_parameter(memory.parameters),
          .gradients = per_parameter(std::max(memory.gradients, memory.accumulating)),
          .optimizer = per_parameter(optimizer.state_bytes()),
          .buffers = per_parameter(memory.peak_gathered + memory.peak_in_transit),
          .allocated = per_parameter(counter->bytes())};
}

// The measurement of the rank that holds the most.
Measurement measure(const Case& row) {
  const auto groups = comm::make_thread_group(row.ranks);
  std::mutex mutex;
  Measurement most;
  std::vector<std::thread> ranks;
  for (const auto& group : groups) {
    ranks.emplace_back([&, rank = group.get()] {
      const Measurement mine = measure_rank(*rank, row);
      const std::lock_guard lock(mutex);
      if (mine.states() > most.states()) most = mine;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return most;
}

// With several microbatches each rank adds its part of the gradients in fp32, at stages 2 and 3.
double formula(const Case& row) {
  const double n = row.ranks;
  const double one[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
  const double several[] = {16, 4 + 12 / n, 2 + 16 / n, 18 / n};
  return (row.microbatches == 1 ? one : several)[row.zero];
}

}  // namespace

int main() {
  at::set_num_threads(1);
  constexpr double kTolerance = 0.05;
  bool fits = true;
  std::printf("bytes per parameter on the rank that holds the most\n");
  std::printf(
      "| ranks | zero | microbatches | weights | gradients | optimizer | states | formula | off | "
      "buffers | allocated |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int ranks : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int64_t microbatches : {1, 4}) {
        if (zero < 2 && microbatches > 1) continue;  // as with one
        const Case row{ranks, zero, microbatches};
        const Measurement m = measure(row);
        const double expected = formula(row);
        const double off = m.states() / expected - 1;
        fits &= std::abs(off) <= kTolerance;
        std::printf(
            "| %d | %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %+.1f %% | %.2f | %.2f |\n", ranks,
            zero, static_cast<int>(microbatches), m.parameters, m.gradients, m.optimizer,
            m.states(), expected, 100 * off, m.buffers, m.allocated);
        std::fflush(stdout);
      }
    }
  }
  return fits ? 0 : 1;
}
