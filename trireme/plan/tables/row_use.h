// Which rows of an embedding table a step uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

// Of some rows. One rank's samples of a step use `distinct` of them, and its gradients of them are
// `sums` vectors, one for each row and subtree of samples (docs/embedding-tables.md). The samples
// of all ranks together use `updated` of them.
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
  // Of the rows [begin, end).
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

}  // namespace trireme::plan
