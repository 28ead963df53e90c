// Looks up all microbatches of a step at once: ids, vectors and gradients travel once for each step
// however many microbatches it has, and gradients are summed over the samples of the whole step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::parallel {

// The ids of several microbatches as one batch: first all samples of the first, then those of the
// second, and so on. Either all have weights or none.
// Throws: ConfigError unless all have `num_tables` tables
JaggedIds join_batches(const std::vector<JaggedIds>& microbatches, int64_t num_tables);

// Not thread safe. The tables must outlive it.
class StepLookUp {
 public:
  // Sends the ids in the background. Gradients can come back if at::GradMode is enabled.
  // microbatches: this rank's, in the order of their samples; may be none
  // Comm, Collective, Throws: as EmbeddingTables::start()
  StepLookUp(EmbeddingTables& tables, std::vector<JaggedIds> microbatches);

  // The embeddings of one microbatch. With gradients they are leaves of the graph. The first call
  // fetches the vectors of all.
  // Comm, Collective: of the first call, as EmbeddingTables::finish()
  Embeddings at(size_t microbatch);

  // Sends the gradients that the microbatches' backwards have left. A microbatch without one counts
  // as zeros. Call it once, after at().
  // Comm, Collective: as the backward of what EmbeddingTables::finish() returns
  void backward();

 private:
  void fetch();

  EmbeddingTables& tables_;
  std::vector<JaggedIds> microbatches_;
  StartedLookUp started_;
  std::optional<Embeddings> all_;  // of the whole step, in the graph of the tables
  std::vector<Embeddings> parts_;  // of each microbatch
};

}  // namespace trireme::parallel
