// What samples of real data say of a table: how many ids a sample has, how skewed they are, and
// which rows a step uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/plan/tables/row_use.h"

namespace trireme::plan {

// The ids of one table in some samples, in an order as of training.
struct SampledIds {
  int64_t rows = 0;
  std::span<const int64_t> values{};   // [m] in [0, rows)
  std::span<const int64_t> offsets{};  // [samples + 1] sample s has values[offsets[s]] and on
  double rows_in_use = 0;              // as in TableLoad
};

struct StepShape {
  int64_t samples_per_rank = 1;
  // Of each rank, the beginnings of the subtrees of its samples, counted from its first one
  // (docs/embedding-tables.md).
  std::vector<std::vector<int64_t>> subtrees{{0}};
  int num_ranks() const { return static_cast<int>(subtrees.size()); }
};

// How many different ids are expected among `all` of which `values` are the first, by Heaps' law
// through the first half of them and all of them.
// Source: Heaps 1978, "Information retrieval: computational and theoretical aspects", section 7.5
double expected_ids(std::span<const int64_t> values, double all);

struct TableStatistics {
  double ids_per_sample = 0;
  int64_t distinct = 0;  // ids in all samples
  double exponent = 0;   // of the Zipf law that expects as many distinct ids
  double hot_share = 0;  // of all ids, those of the hottest 1 % of the rows
  double rows_in_use = 0;
  RowUse use{};  // of a rank in a step, the mean over the samples' steps
};

// With fewer samples than a step has, the law's exponent says how many more rows the step uses.
// At least one sample.
TableStatistics measure_table(const SampledIds& ids, const StepShape& shape);

// The same for ids that follow Zipf's law, their hot rows anywhere in the table.
TableStatistics assume_zipf(int64_t rows, double exponent, double ids_per_sample,
                            const StepShape& shape);

}  // namespace trireme::plan
