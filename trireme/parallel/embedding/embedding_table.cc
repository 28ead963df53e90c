#include "trireme/parallel/embedding/embedding_table.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/shown.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kElementsPerTask = 1 << 14;

at::Tensor initial_weights(const TableConfig& config, const mesh::Box& box, at::ScalarType dtype,
                           uint64_t seed) {
  TRIREME_CHECK(dtype == at::kFloat || dtype == at::kDouble,
                "embedding tables are fp32 or fp64; found ", dtype);
  const at::Tensor weights = at::empty({box.size[0], box.size[1]}, at::TensorOptions(dtype));
  const double scale = config.initial_scale > 0 ? config.initial_scale
                                                : 1 / std::sqrt(static_cast<double>(config.rows));
  const RandomKey key = random_key(seed, config.name + ".weight");
  const int64_t width = box.size[1];
  AT_DISPATCH_FLOATING_TYPES(dtype, "initial_weights", [&] {
    auto* const out = weights.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, box.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = box.offset[0] + i / width, column = box.offset[1] + i % width;
        const auto index = static_cast<uint64_t>(row * config.width + column);
        out[i] = static_cast<scalar_t>(scale * (2 * random_uniform(key, index) - 1));
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
