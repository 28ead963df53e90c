// Embedding tables on one rank, written plainly: torch's embedding_bag with gradients of the whole
// tables, and optimizers as their papers say.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/harness/draw.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::harness {

// The ids of a batch for every table: 0 to 3 for each sample, few distinct ones, some twice.
parallel::JaggedIds draw_ids(Draw& draw, const std::vector<parallel::TableConfig>& tables,
                             int64_t num_samples, at::ScalarType dtype);

// The samples [begin, end) of a batch.
parallel::JaggedIds samples_of(const parallel::JaggedIds& ids, int64_t num_tables, int64_t begin,
                               int64_t end);

// The rows of Embeddings for the samples [begin, end) of a batch.
parallel::Embeddings samples_of(const parallel::Embeddings& whole, const parallel::JaggedIds& ids,
                                const std::vector<parallel::TableConfig>& tables, int64_t begin,
                                int64_t end);

class EmbeddingOracle {
 public:
  EmbeddingOracle(std::vector<parallel::TableConfig> tables,
                  const parallel::EmbeddingOptions& options);

  parallel::Embeddings look_up(const parallel::JaggedIds& ids);
  // One step from the gradients that a backward has left in the tables.
  void step(const parallel::JaggedIds& ids);
  // By the names of EmbeddingTables::state(), each whole.
  std::map<std::string, at::Tensor> state() const;
  // Of the whole table, before step().
  at::Tensor gradient(size_t table) const { return weights_[table].grad(); }

 private:
  at::Tensor& state(const char* name, size_t table);

  std::vector<parallel::TableConfig> tables_;
  parallel::EmbeddingOptions options_;
  std::vector<at::Tensor> weights_;
  std::map<std::string, at::Tensor> states_;
  int64_t num_steps_ = 0;
};

}  // namespace trireme::harness
