// Steps of embedding tables on one rank and on several, to compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/harness/draw.h"
#include "tests/harness/parameter_name.h"
#include "tests/parallel/embedding/embedding_oracle.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::harness {

// For tests with a rule as parameter.
inline constexpr parallel::RowRule kEachRule[] = {
    parallel::RowRule::kSgd, parallel::RowRule::kAdaGrad, parallel::RowRule::kRowWiseAdaGrad,
    parallel::RowRule::kLazyAdam, parallel::RowRule::kAdam};
inline constexpr auto rule_name = [](const auto& info) {
  return parameter_name(name_of(parallel::kRowRules, info.param));
};

// [0, length) cut at random, some parts empty.
std::vector<int64_t> draw_cuts(Draw& draw, int64_t length, int parts);

// Small tables of every kind of pooling, all replicated.
std::vector<parallel::TableConfig> make_tables();

// The tables placed at random, by columns only if they may be.
std::vector<parallel::TableConfig> place(Draw& draw, std::vector<parallel::TableConfig> tables,
                                         int world, bool may_columns);

// Of one table: a sample with these ids.
parallel::JaggedIds one_sample(const std::vector<int64_t>& ids);

std::vector<int64_t> numbers(const at::Tensor& tensor);

// Each with memory for so many of its rows on a rank that has them whole, the others in `folder`.
// num_rows: 0: all are in memory
std::vector<parallel::TableConfig> on_disk(std::vector<parallel::TableConfig> tables,
                                           const parallel::EmbeddingOptions& options,
                                           int64_t num_rows, const std::filesystem::path& folder);
// In memory or on a disk.
at::Tensor values_of(const parallel::TableTensor& tensor);

// A gradient for each output, the same for each sample whatever rank it is on.
parallel::Embeddings gradients_of(const parallel::Embeddings& whole, int64_t seed);
void run_backward(const parallel::Embeddings& outputs, const parallel::Embeddings& gradients);

// Within 1e-12, or with the same bits.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what);
void expect_close(const parallel::Embeddings& actual, const parallel::Embeddings& expected);
void expect_same_bits(const parallel::Embeddings& actual, const parallel::Embeddings& expected);

// The part of a whole tensor that a rank holds.
at::Tensor box_of(const at::Tensor& whole, const mesh::Layout& layout, int rank);

// What one rank without a group has in and after some steps.
struct OneRun {
  std::vector<parallel::JaggedIds> batches;
  std::vector<parallel::Embeddings> outputs;
  std::vector<parallel::Embeddings> gradients;
  std::map<std::string, at::Tensor> state;
};
OneRun run_on_one(Draw& draw, const std::vector<parallel::TableConfig>& tables,
                  const parallel::EmbeddingOptions& options, int64_t num_samples, int num_steps);

// The state of a rank's tables has the bits of `expected`, which has whole tensors.
void expect_state(parallel::EmbeddingTables& tables,
                  const std::map<std::string, at::Tensor>& expected);

}  // namespace trireme::harness
