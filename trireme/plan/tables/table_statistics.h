// Statistics of an embedding table: the rows that a step uses, from a formula or from samples of
// real data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

// The rows of an embedding table that a step uses.

// Counts over a set of rows. One rank's samples of a step use `distinct` of them, and its gradients
// of them are `sums` vectors, one for each row and subtree of samples
// (docs/guide/embedding-tables.md). The samples of all ranks together use `updated` of them.
struct RowCounts {
  double distinct = 0;
  double sums = 0;
  double updated = 0;

  RowCounts& operator+=(const RowCounts& other);
  RowCounts operator-(const RowCounts& other) const;
  RowCounts operator*(double factor) const;
};

// Counts by row, in buckets of neighbouring rows: row r of R is in bucket r * n / R of n.
// Within a bucket rows count as alike. With a bucket for each row the counts are exact.
class RowUse {
 public:
  static constexpr int64_t kMaxBuckets = 1024;
  static int64_t num_buckets(int64_t rows) { return rows < kMaxBuckets ? rows : kMaxBuckets; }
  static int64_t bucket_of(int64_t row, int64_t rows) { return row * num_buckets(rows) / rows; }

  RowUse() = default;
  // buckets: at most kMaxBuckets and at most one for each row
  // subtrees: in how many a rank's samples lie
  RowUse(int64_t rows, std::span<const RowCounts> buckets, int64_t subtrees = 1);
  // The same counts for each row.
  static RowUse even(int64_t rows, const RowCounts& all, int64_t subtrees = 1);

  int64_t rows() const { return rows_; }
  int64_t subtrees() const { return subtrees_; }
  // The counts of the rows [begin, end).
  RowCounts in(int64_t begin, int64_t end) const;
  RowCounts all() const { return in(0, rows_); }
  // The counts times the factors.
  RowUse scaled(double distinct_and_sums, double updated) const;

 private:
  RowCounts before(int64_t row) const;
  int64_t begin_of(size_t bucket) const;

  int64_t rows_ = 0;
  int64_t subtrees_ = 1;
  std::vector<RowCounts> sums_{RowCounts{}};  // [buckets + 1] of all buckets before
};

// One rank's ids of a table in a step.
struct RankIds {
  std::span<const int64_t> values{};    // [m]
  std::span<const uint8_t> subtrees{};  // [m] the subtree of each id's sample; empty: all in one
};

// Adds one rank's `distinct` and `sums` to the buckets of a table, num_buckets(rows) of them.
void count_ids(const RankIds& ids, int64_t rows, std::span<RowCounts> buckets);
// Adds what all ranks together use.
void count_updates(std::span<const RankIds> of_ranks, int64_t rows, std::span<RowCounts> buckets);

// Statistics of a table from samples of real data: ids per sample, their skew, and the rows that a
// step uses.

// The ids of one table in some samples, in an order as of training.
struct SampledIds {
  int64_t rows = 0;
  std::span<const int64_t> values{};   // [m] in [0, rows)
  std::span<const int64_t> offsets{};  // [samples + 1] sample s has values[offsets[s]] and on
  double rows_in_use = 0;              // as in TableLoad
};

struct StepShape {
  int64_t samples_per_rank = 1;
  // For each rank, where the subtrees of its samples begin, counted from its first sample
  // (docs/guide/embedding-tables.md).
  std::vector<std::vector<int64_t>> subtrees{{0}};
  int num_ranks() const { return static_cast<int>(subtrees.size()); }
};

// Expected number of different ids among `all` ids that begin with `values`, by Heaps' law fitted
// to the first half of `values` and to all of them.
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

// Zipf's law: the i-th most frequent of N rows is used with probability proportional to i^-s. Ids
// of users, words and items follow it closely enough to say how many different ones a batch has.
// Source: Breslau et al. 1999, "Web caching and Zipf-like distributions: evidence and implications"

// The expected number of different rows among `draws` independent draws, the sum over rows of
// 1 - (1 - p)^draws. Exact for the most frequent rows; the others are taken in blocks, which
// changes less than 0.1 %.
double expected_distinct(int64_t rows, double exponent, double draws);

// The share of all draws that the most frequent rows get, `part` of all rows and at least one.
double zipf_share(int64_t rows, double exponent, double part);

// The exponent for which `distinct` different rows are expected among `draws`; within [0, 4].
double fit_zipf(int64_t rows, double draws, double distinct);

}  // namespace trireme::plan
