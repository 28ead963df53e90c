#include "tests/parallel/embedding/embedding_runs.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/tensors.h"

namespace trireme::harness {

using namespace parallel;

namespace {

mesh::Placement draw_placement(Draw& draw, const TableConfig& table, int world, bool may_columns) {
  switch (draw.below(may_columns ? 7 : 5)) {
    case 0: return mesh::Placement::replicated();
    case 1: return whole_on(draw.below(world), table.rows, world);
    case 2: return mesh::Placement::sharded(0, draw_cuts(draw, table.rows, world));
    case 3: {
      const int first = draw.below(world);
      return rows_on(first, 1 + draw.below(world - first), table.rows, world);
    }
    case 4: return mesh::Placement::sharded(0);
    case 5: return mesh::Placement::sharded(1, draw_cuts(draw, table.width, world));
    default: return mesh::Placement::sharded(1);
  }
}

at::Tensor gradient_of(const at::Tensor& whole, int64_t seed) {
  return at::arange(whole.numel(), at::kDouble)
      .add_(static_cast<double>(seed))
      .mul_(0.7)
      .sin_()
      .to(whole.scalar_type())
      .view(whole.sizes());
}

template <typename Compare>
void compare(const Embeddings& actual, const Embeddings& expected, const Compare& compare_tensors) {
  compare_tensors(actual.pooled_BW.detach(), expected.pooled_BW.detach(), "pooled");
  ASSERT_EQ(actual.apart.size(), expected.apart.size());
  for (size_t i = 0; i < actual.apart.size(); ++i) {
    compare_tensors(actual.apart[i].detach(), expected.apart[i].detach(), "apart");
  }
}

}  // namespace

std::vector<int64_t> draw_cuts(Draw& draw, int64_t length, int parts) {
  std::vector<int64_t> cuts{0, length};
  for (int i = 1; i < parts; ++i) cuts.push_back(draw.below(length + 1));
  std::ranges::sort(cuts);
  return cuts;
}

std::vector<TableConfig> make_tables() {
  return {{.name = "user", .rows = 11, .width = 5},
          {.name = "item", .rows = 3, .width = 4, .pooling = Pooling::kMean},
          {.name = "word", .rows = 7, .width = 3, .pooling = Pooling::kNone},
          {.name = "one", .rows = 1, .width = 1},
          {.name = "tag", .rows = 6, .width = 8, .is_weighted = true}};
}

std::vector<TableConfig> place(Draw& draw, std::vector<TableConfig> tables, int world,
                               bool may_columns) {
  for (TableConfig& table : tables) {
    table.placement = draw_placement(draw, table, world, may_columns);
  }
  return tables;
}

JaggedIds one_sample(const std::vector<int64_t>& ids) {
  return jagged_ids(at::tensor(ids, at::kLong), at::full({1, 1}, std::ssize(ids), at::kLong));
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto* const begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

std::vector<TableConfig> on_disk(std::vector<TableConfig> tables, const EmbeddingOptions& options,
                                 int64_t num_rows, const std::filesystem::path& folder) {
  for (TableConfig& table : tables) {
    const RowOptimizer row(options.optimizer, at::empty({1, table.width}, options.dtype));
    table.memory_bytes = num_rows * row.image_bytes();
    table.folder = folder;
  }
  return tables;
}

at::Tensor values_of(const TableTensor& tensor) {
  return tensor.stored ? tensor.stored->read(0, tensor.local.size(0)) : tensor.local;
}

Embeddings gradients_of(const Embeddings& whole, int64_t seed) {
  Embeddings result{gradient_of(whole.pooled_BW.detach(), seed), {}};
  for (const at::Tensor& apart : whole.apart) {
    result.apart.push_back(gradient_of(apart.detach(), ++seed));
  }
  return result;
}

void run_backward(const Embeddings& outputs, const Embeddings& gradients) {
  std::vector<at::Tensor> roots{outputs.pooled_BW}, seeds{gradients.pooled_BW};
  roots.insert(roots.end(), outputs.apart.begin(), outputs.apart.end());
  seeds.insert(seeds.end(), gradients.apart.begin(), gradients.apart.end());
  torch::autograd::backward(roots, seeds);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  assert_close(actual, expected, 1e-12, 1e-12, what);
}
void expect_close(const Embeddings& actual, const Embeddings& expected) {
  compare(actual, expected,
          [](const auto& a, const auto& b, const char* what) { expect_close(a, b, what); });
}
void expect_same_bits(const Embeddings& actual, const Embeddings& expected) {
  compare(actual, expected,
          [](const auto& a, const auto& b, const char* what) { assert_same_bits(a, b, what); });
}

at::Tensor box_of(const at::Tensor& whole, const mesh::Layout& layout, int rank) {
  const mesh::Box box = layout.local_box(rank);
  at::Tensor part = whole;
  for (int64_t d = 0; d < part.dim(); ++d) {
    const auto at = static_cast<size_t>(d);
    part = part.narrow(d, box.offset[at], box.size[at]);
  }
  return part.contiguous();
}

OneRun run_on_one(Draw& draw, const std::vector<TableConfig>& tables,
                  const EmbeddingOptions& options, int64_t num_samples, int num_steps) {
  OneRun run;
  EmbeddingTables one(tables, nullptr, options);
  for (int step = 0; step < num_steps; ++step) {
    run.batches.push_back(draw_ids(draw, tables, num_samples, options.dtype));
    run.outputs.push_back(one.look_up(run.batches.back()));
    run.gradients.push_back(gradients_of(run.outputs.back(), step));
    run_backward(run.outputs.back(), run.gradients.back());
  }
  for (const TableTensor& tensor : one.state()) run.state[tensor.name] = tensor.local.clone();
  return run;
}

void expect_state(EmbeddingTables& tables, const std::map<std::string, at::Tensor>& expected) {
  const std::vector<TableTensor> state = tables.state();
  EXPECT_EQ(state.size(), expected.size());
  for (const TableTensor& tensor : state) {
    assert_same_bits(values_of(tensor),
                     box_of(expected.at(tensor.name), tensor.layout, tensor.rank), tensor.name);
  }
}

}  // namespace trireme::harness
