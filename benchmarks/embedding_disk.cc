// Trains a DLRM whose tables' rows are on a disk, or the same model in memory.
//   embedding_disk_benchmark FOLDER MEBIBYTES [steps] [scale] [is dense] [exponent] [batch]
// One rank, 26 tables of width 64 with the numbers of categories of Criteo's Kaggle data times
// `scale`, row-wise AdaGrad. A sample has one id in each table, drawn by Zipf's law and scattered
// over the rows. Every row has been written before, so no row has its first values. The dense part
// has Criteo's 13 numbers, layers 512-256-64 below, dot products of all pairs and layers 512-256-1
// above, with SGD. With `is dense` 0 the steps do nothing but look up, go back and update. The ids
// of the next batch are sent before a batch computes.
// The tables keep MEBIBYTES of rows in memory; 0: all. Run it under benchmarks/memory_limit.py.
// Prints steps per second, and of the large tables the share of distinct rows of a batch that were
// in memory beside the share of as many of the most frequent rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/clock.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/random/random.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace {

using namespace trireme;
using namespace trireme::parallel;

constexpr int64_t kWidth = 64;
constexpr int64_t kCategories[] = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};
constexpr size_t kTables = std::size(kCategories);
constexpr int64_t kRowBytes = (kWidth + 1) * static_cast<int64_t>(sizeof(float));

struct Options {
  std::string folder;
  int64_t memory_mib = 0;
  int64_t steps = 300;
  double scale = 0.5;
  bool is_dense = true;
  double exponent = 1.05;
  int64_t batch = 2048;
};

// Draws without a table of all rows.
// Source: Hörmann & Derflinger 1996, "Rejection-inversion to generate variates from monotone
//         discrete distributions"
class ZipfRanks {
 public:
  ZipfRanks(int64_t rows, double exponent)
      : exponent_(exponent),
        rows_(static_cast<double>(rows)),
        first_(integral(1.5) - 1),
        last_(integral(rows_ + 0.5)) {}
  int64_t draw(std::mt19937_64& random) const {
    std::uniform_real_distribution<double> uniform(first_, last_);
    while (true) {
      const double u = uniform(random), k = std::clamp(std::round(inverse(u)), 1.0, rows_);
      if (u >= integral(k + 0.5) - std::pow(k, -exponent_)) return static_cast<int64_t>(k) - 1;
    }
  }

 private:
  double integral(double x) const { return std::pow(x, 1 - exponent_) / (1 - exponent_); }
  double inverse(double y) const { return std::pow(y * (1 - exponent_), 1 / (1 - exponent_)); }
  double exponent_, rows_, first_, last_;
};

// The rows that fit: a table's whole, or an equal part of what the smaller ones leave.
std::vector<int64_t> share_memory(const std::vector<int64_t>& rows, int64_t num_bytes) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t t) { return rows[t]; });
  std::vector<int64_t> shares(rows.size());
  int64_t left = num_bytes / kRowBytes;
  for (size_t i = 0; i < order.size(); ++i) {
    shares[order[i]] = std::min(rows[order[i]], left / static_cast<int64_t>(order.size() - i));
    left -= shares[order[i]];
  }
  return shares;
}

class Batches {
 public:
  Batches(const Options& options, const std::vector<int64_t>& rows, std::vector<int64_t> shares)
      : options_(options), rows_(rows), shares_(std::move(shares)) {
    for (const int64_t count : rows) {
      ranks_.emplace_back(count, options.exponent);
      keys_.push_back(random_key(7, std::to_string(keys_.size())));
    }
  }
  JaggedIds draw() {
    const at::Tensor values =
        at::empty({static_cast<int64_t>(kTables) * options_.batch}, at::kLong);
    auto* out = values.mutable_data_ptr<int64_t>();
    for (size_t t = 0; t < kTables; ++t) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < options_.batch; ++i) {
        places.push_back(ranks_[t].draw(random_));
        *out++ = static_cast<int64_t>(random_permutation(
            keys_[t], static_cast<uint64_t>(places.back()), static_cast<uint64_t>(rows_[t])));
      }
      if (shares_[t] == rows_[t]) continue;
      std::ranges::sort(places);
      places.erase(std::ranges::unique(places).begin(), places.end());
      num_rows_ += std::ssize(places);
      num_frequent_ += std::ranges::lower_bound(places, shares_[t]) - places.begin();
    }
    return jagged_ids(values, at::ones({static_cast<int64_t>(kTables), options_.batch}, at::kLong));
  }
  // Distinct rows of tables that do not fit, and those of them among the most frequent that would.
  int64_t num_rows() const { return num_rows_; }
  double frequent_share() const {
    return static_cast<double>(num_frequent_) / static_cast<double>(num_rows_);
  }
  void forget() { num_rows_ = num_frequent_ = 0; }

 private:
  Options options_;
  std::vector<int64_t> rows_, shares_;
  std::vector<ZipfRanks> ranks_;
  std::vector<RandomKey> keys_;
  std::mt19937_64 random_{1};
  int64_t num_rows_ = 0, num_frequent_ = 0;
};

// A DLRM without its tables.
class Dense {
 public:
  Dense() {
    const auto pairs = static_cast<int64_t>(kTables * (kTables + 1) / 2);
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{13, 512}, {512, 256}, {256, kWidth}})
      below_.push_back(layer(in, out));
    for (const auto& [in, out] :
         {std::pair<int64_t, int64_t>{kWidth + pairs, 512}, {512, 256}, {256, 1}})
      above_.push_back(layer(in, out));
    const at::Tensor places =
        at::tril_indices(static_cast<int64_t>(kTables) + 1, static_cast<int64_t>(kTables) + 1, -1);
    pairs_ = places[0] * (static_cast<int64_t>(kTables) + 1) + places[1];
  }
  at::Tensor loss(const at::Tensor& numbers, const at::Tensor& pooled_BW,
                  const at::Tensor& labels) {
    at::Tensor x = numbers;
    for (const auto& [w, b] : below_) x = at::relu(at::linear(x, w, b));
    const at::Tensor vectors = at::cat({x, pooled_BW}, 1).view({x.size(0), -1, kWidth});
    const at::Tensor products = at::bmm(vectors, vectors.transpose(1, 2)).flatten(1);
    x = at::cat({x, products.index_select(1, pairs_)}, 1);
    for (size_t i = 0; i < above_.size(); ++i) {
      x = at::linear(x, above_[i].first, above_[i].second);
      if (i + 1 < above_.size()) x = at::relu(x);
    }
    return at::binary_cross_entropy_with_logits(x.squeeze(1), labels);
  }
  void step() {
    const c10::AutoGradMode no_grad(false);
    for (auto* const layers : {&below_, &above_}) {
      for (auto& [w, b] : *layers) {
        for (at::Tensor* const each : {&w, &b}) {
          each->sub_(each->grad(), 0.01);
          each->mutable_grad().reset();
        }
      }
    }
  }

 private:
  static std::pair<at::Tensor, at::Tensor> layer(int64_t in, int64_t out) {
    const double scale = 1 / std::sqrt(static_cast<double>(in));
    return {at::randn({out, in}).mul_(scale).requires_grad_(), at::zeros({out}).requires_grad_()};
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> below_, above_;
  at::Tensor pairs_;
};

void write_all_rows(EmbeddingTables& tables) {
  constexpr int64_t kRowsAtOnce = 1 << 14;
  for (const TableTensor& tensor : tables.state()) {
    if (!tensor.stored) continue;
    const int64_t rows = tensor.local.size(0);
    for (int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
      const int64_t end = std::min(begin + kRowsAtOnce, rows);
      tensor.stored->write(begin, tensor.stored->read(begin, end));
    }
  }
}

// Of the distinct rows that batches wanted of tables on the disk: found, and all. A row is wanted
// in forward and once more in backward, where it is always found.
double share_found(const EmbeddingTables& tables, const std::vector<bool>& is_on_disk) {
  double missed = 0, count = 0;
  for (size_t t = 0; t < kTables; ++t) {
    if (!is_on_disk[t]) continue;
    missed += 2 * (1 - tables.hit_rate(t));
    ++count;
  }
  return count == 0 ? 1 : 1 - missed / count;
}

void run(const Options& options) {
  at::set_num_threads(1);
  set_freed_memory(FreedMemory::kKept);
  std::vector<int64_t> rows;
  int64_t num_rows = 0;
  for (const int64_t count : kCategories) {
    const double scaled = std::round(static_cast<double>(count) * options.scale);
    rows.push_back(std::max<int64_t>(3, static_cast<int64_t>(scaled)));
    num_rows += rows.back();
  }
  const std::vector<int64_t> shares =
      options.memory_mib == 0 ? rows : share_memory(rows, options.memory_mib << 20);
  std::vector<TableConfig> configs;
  std::vector<bool> is_on_disk;
  for (size_t t = 0; t < kTables; ++t) {
    TableConfig& config = configs.emplace_back();
    config.name = "t" + std::to_string(t);
    config.rows = rows[t];
    config.width = kWidth;
    is_on_disk.push_back(shares[t] < rows[t]);
    if (!is_on_disk.back()) continue;
    config.memory_bytes = shares[t] * kRowBytes;
    config.folder = options.folder;
  }
  EmbeddingTables tables(configs, nullptr, {.optimizer = {.rule = RowRule::kRowWiseAdaGrad}});
  write_all_rows(tables);
  Batches batches(options, rows, shares);
  Dense dense;
  const at::Tensor numbers = at::rand({options.batch, 13});
  const at::Tensor labels = at::rand({options.batch}).gt(0.7).to(at::kFloat);
  const at::Tensor gradient =
      at::rand({options.batch, static_cast<int64_t>(kTables) * kWidth}).mul_(1e-3);
  StartedLookUp next = tables.start(batches.draw());
  double drawing = 0;
  const auto step = [&] {
    const auto begin = std::chrono::steady_clock::now();
    JaggedIds ids = batches.draw();
    drawing += seconds_since(begin);
    const StartedLookUp now = std::exchange(next, tables.start(std::move(ids)));
    const Embeddings found = tables.finish(now);
    if (!options.is_dense) return torch::autograd::backward({found.pooled_BW}, {gradient});
    dense.loss(numbers, found.pooled_BW, labels).backward();
    dense.step();
  };
  for (int64_t i = 0; i < options.steps; ++i) step();  // the cache learns
  batches.forget();
  drawing = 0;
  const double before = share_found(tables, is_on_disk);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.steps; ++i) step();
  const double seconds = seconds_since(begin) - drawing;
  const auto steps = static_cast<double>(options.steps);
  std::printf("%s, %ld rows (%.2f GB), %.2f GB in memory, %s: %.2f steps/s, %.1f ms a step",
              options.memory_mib == 0 ? "memory" : "disk", static_cast<long>(num_rows),
              static_cast<double>(num_rows * kRowBytes) / 1e9,
              static_cast<double>(tables.memory_bytes()) / 1e9,
              options.is_dense ? "DLRM" : "tables alone", steps / seconds, 1e3 * seconds / steps);
  if (options.memory_mib > 0) {
    // As many rows were wanted before the measurement as in it.
    std::printf("; of %.0f rows a step in memory %.2f %%, ideal %.2f %%",
                static_cast<double>(batches.num_rows()) / steps,
                100 * (2 * share_found(tables, is_on_disk) - before),
                100 * batches.frequent_share());
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: embedding_disk_benchmark FOLDER MEBIBYTES [steps] [scale] [is dense] "
                 "[exponent] [batch]\n");
    return 2;
  }
  Options options{.folder = argv[1], .memory_mib = std::atol(argv[2])};
  if (argc > 3) options.steps = std::atol(argv[3]);
  if (argc > 4) options.scale = std::atof(argv[4]);
  if (argc > 5) options.is_dense = std::atol(argv[5]) != 0;
  if (argc > 6) options.exponent = std::atof(argv[6]);
  if (argc > 7) options.batch = std::atol(argv[7]);
  run(options);
}
