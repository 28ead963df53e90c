#include "trireme/plan/tables/row_use.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::plan {

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  distinct += other.distinct;
  sums += other.sums;
  updated += other.updated;
  return *this;
}

RowCounts RowCounts::operator-(const RowCounts& other) const {
  return {distinct - other.distinct, sums - other.sums, updated - other.updated};
}

RowCounts RowCounts::operator*(double factor) const {
  return {distinct * factor, sums * factor, updated * factor};
}

RowUse::RowUse(int64_t rows, std::span<const RowCounts> buckets, int64_t subtrees)
    : rows_(rows), subtrees_(subtrees) {
  TRIREME_ASSERT(!buckets.empty() && std::ssize(buckets) <= num_buckets(rows), buckets.size(),
                 " buckets of ", rows, " rows");
  for (const RowCounts& bucket : buckets) {
    sums_.push_back(sums_.back());
    sums_.back() += bucket;
  }
}

RowUse RowUse::even(int64_t rows, const RowCounts& all, int64_t subtrees) {
  return RowUse(rows, std::span(&all, 1), subtrees);
}

// The first row of the bucket.
int64_t RowUse::begin_of(size_t bucket) const {
  const auto count = std::ssize(sums_) - 1;
  return (static_cast<int64_t>(bucket) * rows_ + count - 1) / count;
}

RowCounts RowUse::before(int64_t row) const {
  if (row >= rows_) return sums_.back();
  const auto count = std::ssize(sums_) - 1;
  const auto bucket = static_cast<size_t>(row * count / rows_);
  const int64_t begin = begin_of(bucket), end = begin_of(bucket + 1);
  RowCounts result = sums_[bucket];
  if (row > begin) {
    const double share = static_cast<double>(row - begin) / static_cast<double>(end - begin);
    result += (sums_[bucket + 1] - sums_[bucket]) * share;
  }
  return result;
}

RowCounts RowUse::in(int64_t begin, int64_t end) const {
  if (begin >= end) return {};
  return before(end) - before(begin);
}

RowUse RowUse::scaled(double distinct_and_sums, double updated) const {
  RowUse result = *this;
  for (RowCounts& sum : result.sums_) {
    sum.distinct *= distinct_and_sums;
    sum.sums *= distinct_and_sums;
    sum.updated *= updated;
  }
  return result;
}

void count_ids(const RankIds& ids, int64_t rows, std::span<RowCounts> buckets) {
  std::vector<std::pair<int64_t, uint8_t>> used;  // (row, subtree)
  used.reserve(ids.values.size());
  for (size_t i = 0; i < ids.values.size(); ++i) {
    used.emplace_back(ids.values[i], ids.subtrees.empty() ? uint8_t{0} : ids.subtrees[i]);
  }
  std::ranges::sort(used);
  const auto [end, last] = std::ranges::unique(used);
  int64_t row_before = -1;
  for (auto place = used.begin(); place != end; ++place) {
    RowCounts& bucket = buckets[static_cast<size_t>(RowUse::bucket_of(place->first, rows))];
    if (place->first != row_before) bucket.distinct += 1;
    bucket.sums += 1;
    row_before = place->first;
  }
}

void count_updates(std::span<const RankIds> of_ranks, int64_t rows, std::span<RowCounts> buckets) {
  std::vector<int64_t> used;
  for (const RankIds& ids : of_ranks) {
    used.insert(used.end(), ids.values.begin(), ids.values.end());
  }
  std::ranges::sort(used);
  const auto [end, last] = std::ranges::unique(used);
  for (auto row = used.begin(); row != end; ++row) {
    buckets[static_cast<size_t>(RowUse::bucket_of(*row, rows))].updated += 1;
  }
}

}  // namespace trireme::plan
