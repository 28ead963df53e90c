#include "trireme/parallel/embedding/embedding_table.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/random/random_words.h"
#include "trireme/base/shown.h"
#include "trireme/parallel/embedding/row_memory.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kElementsPerTask = 1 << 14;
constexpr int64_t kNumbersAtOnce = 256;

// random_uniform() of consecutive indices, in a third of the time.
template <typename Take>
void for_each_uniform(RandomKey key, int64_t first, int64_t count, const Take& take) {
  uint32_t words[4 * kNumbersAtOnce];
  for (int64_t done = 0; done < count; done += kNumbersAtOnce) {
    const int64_t now = std::min(kNumbersAtOnce, count - done);
    fill_random_words(key, static_cast<uint64_t>(first + done),
                      {words, static_cast<size_t>(4 * now)});
    for (int64_t i = 0; i < now; ++i) {
      const uint64_t bits = (uint64_t{words[4 * i]} << 32) | words[4 * i + 1];
      take(done + i, static_cast<double>(bits >> 11) * 0x1.0p-53);
    }
  }
}

at::Tensor initial_weights(const TableConfig& config, const mesh::Box& box, at::ScalarType dtype,
                           uint64_t seed) {
  TRIREME_CHECK(dtype == at::kFloat || dtype == at::kDouble,
                "embedding tables are fp32 or fp64; found ", dtype);
  const at::Tensor weights = empty_rows({box.size[0], box.size[1]}, dtype);
  const double scale = config.initial_scale > 0 ? config.initial_scale
                                                : 1 / std::sqrt(static_cast<double>(config.rows));
  const RandomKey key = random_key(seed, config.name + ".weight");
  const int64_t width = box.size[1];
  AT_DISPATCH_FLOATING_TYPES(dtype, "initial_weights", [&] {
    auto* const out = weights.mutable_data_ptr<scalar_t>();
    const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / config.width);
    at::parallel_for(0, box.size[0], rows_per_task, [&](int64_t begin, int64_t end) {
      // Whole rows are one run of numbers.
      const int64_t run = width == config.width ? end - begin : 1;
      for (int64_t row = begin; row < end; row += run) {
        const int64_t first = (box.offset[0] + row) * config.width + box.offset[1];
        scalar_t* const to = out + row * width;
        for_each_uniform(key, first, run * width, [&](int64_t i, double uniform) {
          to[i] = static_cast<scalar_t>(scale * (2 * uniform - 1));
        });
      }
    });
  });
  return weights;
}

}  // namespace

EmbeddingTable::EmbeddingTable(const TableConfig& config, const mesh::Axis& axis, int rank,
                               c10::ScalarType dtype, uint64_t seed,
                               const RowOptimizerConfig& optimizer)
    : config_(config),
      layout_(layout_of(config, axis)),
      rank_(rank),
      weights_(initial_weights(config, layout_.local_box(rank), dtype, seed)),
      optimizer_(optimizer, weights_) {
  const mesh::Placement& placement = config.placement;
  const bool is_by_columns =
      placement.kind == mesh::Placement::Kind::kSharded && placement.dim == 1;
  TRIREME_CHECK(
      optimizer.rule != RowRule::kRowWiseAdaGrad || !is_by_columns, "embedding table \"",
      shown(config.name),
      "\" is split by columns, but rowwise-adagrad needs a row's whole gradient; split it "
      "by rows or choose adagrad");
}

std::vector<TableTensor> EmbeddingTable::state() {
  optimizer_.catch_up_all();
  const std::string name = config_.name + ".weight";
  std::vector<TableTensor> tensors{{name, weights_, layout_, rank_}};
  for (const RowState& state : optimizer_.states()) {
    const mesh::Layout layout =
        state.values.dim() == 2 ? layout_
                                : mesh::Layout({config_.rows}, layout_.axes(), {config_.placement});
    tensors.push_back({state.name + "." + name, state.values, layout, rank_});
  }
  return tensors;
}

}  // namespace trireme::parallel
