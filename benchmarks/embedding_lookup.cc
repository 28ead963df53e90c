// Measures training steps of embedding tables alone: look-up, backward and update of the rows.
//   embedding_lookup_benchmark [rule] [rounds] [batch] [ids a sample] [tables] [rows] [width]
// rule: sgd, adagrad or rowwise-adagrad
// Compares, on processes of one thread each:
//   plain      one rank, torch's embedding_bag with sparse gradients, and torch's sparse updates
//   one rank   Trireme's tables on one rank
//   by rows    on two ranks, every table split by rows
//   by columns on two ranks, every table split by columns
//   whole      on two ranks, the tables in turn on one of them
//   replicated on two ranks, every table on each
//   open       on two ranks, every table with an open vocabulary, split by rows
// Ids are drawn by Zipf's law with exponent 1.05 and scattered over the rows. Every round runs each
// way once. Prints medians of the slowest rank's wall time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include "benchmarks/group_seconds.h"
#include "tests/harness/counting_communicator.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/numbers.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace {

using namespace trireme;
using namespace trireme::parallel;
using benchmarks::seconds_of;

struct Sizes {
  RowRule rule = RowRule::kSgd;
  int64_t rounds = 9;
  int64_t B = 2048;  // over all ranks
  int64_t ids = 1;   // of each sample in each table
  int64_t tables = 26;
  int64_t rows = 100000;
  int64_t width = 64;
};

constexpr int kRanks = 2, kBatches = 8;
constexpr double kRate = 0.01, kEpsilon = 1e-8;

// Ids of a whole batch, by table and sample.
at::Tensor draw_batch(const Sizes& sizes, int batch) {
  static const std::vector<double> cumulative = [&] {
    std::vector<double> sums;
    double sum = 0;
    for (int64_t i = 0; i < sizes.rows; ++i) {
      sums.push_back(sum += std::pow(static_cast<double>(i + 1), -1.05));
    }
    return sums;
  }();
  std::mt19937_64 random(static_cast<uint64_t>(batch) + 1);
  std::uniform_real_distribution<double> uniform(0, cumulative.back());
  const at::Tensor ids = at::empty({sizes.tables, sizes.B, sizes.ids}, at::kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < sizes.tables; ++t) {
    const RandomKey key = random_key(7, std::to_string(t));
    for (int64_t i = 0; i < sizes.B * sizes.ids; ++i) {
      const auto place = std::ranges::lower_bound(cumulative, uniform(random)) - cumulative.begin();
      *out++ = static_cast<int64_t>(
          random_permutation(key, static_cast<uint64_t>(place), static_cast<uint64_t>(sizes.rows)));
    }
  }
  return ids;
}

// Samples [first, first + count) of a batch.
JaggedIds samples_of(const at::Tensor& batch, int64_t first, int64_t count) {
  return jagged_ids(batch.narrow(1, first, count).reshape({-1}),
                    at::full({batch.size(0), count}, batch.size(2), at::kLong));
}

std::vector<TableConfig> make_tables(const Sizes& sizes,
                                     const std::function<mesh::Placement(int64_t)>& place) {
  std::vector<TableConfig> tables;
  for (int64_t t = 0; t < sizes.tables; ++t) {
    tables.push_back({.name = "t" + std::to_string(t),
                      .rows = sizes.rows,
                      .width = sizes.width,
                      .placement = place(t)});
  }
  return tables;
}

// torch's embedding_bag and sparse optimizers.
class Plain {
 public:
  explicit Plain(const Sizes& sizes) : sizes_(sizes) {
    for (int64_t t = 0; t < sizes.tables; ++t) {
      weights_.push_back(at::rand({sizes.rows, sizes.width}).requires_grad_());
      if (sizes.rule == RowRule::kAdaGrad) sums_.push_back(at::zeros({sizes.rows, sizes.width}));
      if (sizes.rule == RowRule::kRowWiseAdaGrad) sums_.push_back(at::zeros({sizes.rows}));
    }
  }
  void step(const at::Tensor& batch, const at::Tensor& gradient) {
    const at::Tensor offsets = at::arange(sizes_.B) * sizes_.ids;
    std::vector<at::Tensor> pooled;
    for (size_t t = 0; t < weights_.size(); ++t) {
      pooled.push_back(
          std::get<0>(at::embedding_bag(weights_[t], batch[static_cast<int64_t>(t)].view({-1}),
                                        offsets, false, 0, /*sparse=*/true)));
    }
    torch::autograd::backward({at::cat(pooled, 1)}, {gradient});
    const c10::AutoGradMode no_grad(false);
    for (size_t t = 0; t < weights_.size(); ++t) update(t);
  }

 private:
  void update(size_t t) {
    at::Tensor& w = weights_[t];
    if (sizes_.rule == RowRule::kSgd) {
      w.add_(w.grad(), -kRate);
    } else if (sizes_.rule == RowRule::kRowWiseAdaGrad) {
      const at::Tensor g = w.grad().coalesce();
      const at::Tensor rows = g._indices()[0];
      sums_[t].index_add_(0, rows, g._values().pow(2).mean(1));
      const at::Tensor root = sums_[t].index_select(0, rows).sqrt().add_(kEpsilon);
      w.index_add_(0, rows, g._values() / root.unsqueeze(1), -kRate);
    } else {  // as torch.optim.Adagrad
      const at::Tensor g = w.grad().coalesce();
      const at::Tensor values = g._values();
      const auto make = [&](const at::Tensor& numbers) {
        return at::sparse_coo_tensor(g._indices(), numbers, g.sizes());
      };
      sums_[t].add_(make(values.pow(2)));
      const at::Tensor root = sums_[t].sparse_mask(g)._values().sqrt().add_(kEpsilon);
      w.add_(make(values / root), -kRate);
    }
    w.mutable_grad().reset();
  }
  Sizes sizes_;
  std::vector<at::Tensor> weights_, sums_;
};

struct Way {
  std::string name;
  std::function<void(int batch)> step;
  std::vector<double> seconds{};
  int64_t bytes = 0;  // sent by this rank for one batch
};

// Each step sends the ids of the next batch.
std::function<void(int)> sharded_steps(EmbeddingTables& tables,
                                       const std::vector<JaggedIds>& batches,
                                       const at::Tensor& gradient) {
  auto started = std::make_shared<std::vector<StartedLookUp>>();
  return [&tables, &batches, gradient, started](int batch) {
    if (started->empty()) started->push_back(tables.start(batches[static_cast<size_t>(batch)]));
    const Embeddings outputs = tables.finish(started->back());
    started->back() = tables.start(batches[static_cast<size_t>((batch + 1) % kBatches)]);
    torch::autograd::backward({outputs.pooled_BW}, {gradient});
  };
}

void print(const Sizes& sizes, const std::vector<Way>& ways) {
  std::printf("%ld tables x %ld rows x %ld, batch %ld, %ld ids a sample and table, %s, fp32\n",
              static_cast<long>(sizes.tables), static_cast<long>(sizes.rows),
              static_cast<long>(sizes.width), static_cast<long>(sizes.B),
              static_cast<long>(sizes.ids), name_of(kRowRules, sizes.rule).c_str());
  std::printf("%-12s %9s %9s %14s %9s %12s\n", "way", "ms/step", "steps/s", "look-ups/s", "x plain",
              "MB sent/rank");
  const double plain = median(ways[0].seconds);
  for (const Way& way : ways) {
    const double seconds = median(way.seconds);
    std::printf("%-12s %9.2f %9.1f %14.3g %9.2f %12.2f\n", way.name.c_str(), 1e3 * seconds,
                1 / seconds, static_cast<double>(sizes.B * sizes.ids * sizes.tables) / seconds,
                plain / seconds, static_cast<double>(way.bytes) / 1e6);
  }
}

void run(const Sizes& sizes, const std::string& job, int rank) {
  at::set_num_threads(1);
  set_freed_memory(FreedMemory::kKept);  // as a training does
  const auto shm = comm::make_shm_group(job, rank, kRanks);
  harness::CountingCommunicator counting(*shm);
  std::vector<at::Tensor> whole;
  std::vector<JaggedIds> own, all;
  const int64_t share = sizes.B / kRanks;
  for (int batch = 0; batch < kBatches; ++batch) {
    whole.push_back(draw_batch(sizes, batch));
    own.push_back(samples_of(whole.back(), rank * share, share));
    all.push_back(samples_of(whole.back(), 0, sizes.B));
  }
  const at::Tensor gradient = at::rand({sizes.B, sizes.tables * sizes.width}).mul_(1e-3);
  const at::Tensor own_gradient = gradient.narrow(0, rank * share, share).contiguous();
  const EmbeddingOptions options{
      .optimizer = {.rule = sizes.rule, .learning_rate = kRate, .epsilon = kEpsilon}};
  const bool is_first = rank == 0;
  std::vector<Way> ways;
  std::vector<std::unique_ptr<EmbeddingTables>> tables;
  std::unique_ptr<Plain> plain;
  if (is_first) plain = std::make_unique<Plain>(sizes);
  ways.push_back({"plain", [&](int batch) {
                    if (is_first) plain->step(whole[static_cast<size_t>(batch)], gradient);
                  }});
  const auto replicated = [](int64_t) { return mesh::Placement::replicated(); };
  if (is_first) {
    tables.push_back(
        std::make_unique<EmbeddingTables>(make_tables(sizes, replicated), nullptr, options));
    ways.push_back({"one rank", sharded_steps(*tables.back(), all, gradient)});
  } else {
    ways.push_back({"one rank", [](int) {}});
  }
  const std::pair<const char*, std::function<mesh::Placement(int64_t)>> placements[] = {
      {"by rows", [](int64_t) { return mesh::Placement::sharded(0); }},
      {"by columns", [](int64_t) { return mesh::Placement::sharded(1); }},
      {"whole",
       [&](int64_t t) { return whole_on(static_cast<int>(t) % kRanks, sizes.rows, kRanks); }},
      {"replicated", replicated}};
  for (const auto& [name, place] : placements) {
    tables.push_back(
        std::make_unique<EmbeddingTables>(make_tables(sizes, place), &counting, options));
    ways.push_back({name, sharded_steps(*tables.back(), own, own_gradient)});
  }
  std::vector<TableConfig> open = make_tables(sizes, placements[0].second);
  for (TableConfig& table : open) {
    table.rows = kOpenRows;
    table.is_open = true;
  }
  tables.push_back(std::make_unique<EmbeddingTables>(open, &counting, options));
  ways.push_back({"open", sharded_steps(*tables.back(), own, own_gradient)});
  for (int64_t round = -1; round < sizes.rounds; ++round) {
    for (Way& way : ways) {
      const int64_t before = counting.sent_by_all_to_all();
      const double seconds = seconds_of(
          [&] {
            for (int batch = 0; batch < kBatches; ++batch) way.step(batch);
          },
          *shm);
      way.bytes = (counting.sent_by_all_to_all() - before) / kBatches;
      if (round >= 0) way.seconds.push_back(seconds / kBatches);
    }
  }
  if (is_first) print(sizes, ways);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  if (argc > 1) sizes.rule = choose(kRowRules, "rule", argv[1]);
  int64_t* const numbers[] = {&sizes.rounds, &sizes.B,    &sizes.ids,
                              &sizes.tables, &sizes.rows, &sizes.width};
  for (int i = 2; i < argc && i < 8; ++i) *numbers[i - 2] = std::atol(argv[i]);
  const std::string job = "embedding-lookup-" + std::to_string(getpid());
  const pid_t child = fork();
  run(sizes, job, child == 0 ? 1 : 0);
  if (child == 0) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}
