#include "trireme/plan/tables/table_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

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

namespace {

constexpr double kHot = 0.01;  // of the rows

int64_t most_subtrees(const StepShape& shape) {
  size_t most = 1;
  for (const auto& of_rank : shape.subtrees) most = std::max(most, of_rank.size());
  return static_cast<int64_t>(most);
}

class Measuring {
 public:
  Measuring(const SampledIds& ids, const StepShape& shape)
      : ids_(ids),
        shape_(shape),
        num_samples_(std::ssize(ids.offsets) - 1),
        in_use_(ids.rows_in_use > 0 ? std::llround(ids.rows_in_use) : ids.rows),
        buckets_(static_cast<size_t>(RowUse::num_buckets(ids.rows))) {}

  TableStatistics measure() {
    TableStatistics result{.rows_in_use = ids_.rows_in_use};
    const auto num_ids = static_cast<double>(ids_.values.size());
    result.ids_per_sample = num_ids / static_cast<double>(num_samples_);
    count_frequencies(result);
    fit_exponent(result);
    const double of_rank = count_ranks(result), of_step = count_steps(result);
    for (RowCounts& bucket : buckets_) {
      bucket.distinct *= of_rank;
      bucket.sums *= of_rank;
      bucket.updated *= of_step;
    }
    result.use = RowUse(ids_.rows, buckets_, most_subtrees(shape_));
    return result;
  }

 private:
  std::span<const int64_t> values(int64_t begin, int64_t end) const {
    const int64_t first = ids_.offsets[static_cast<size_t>(begin)];
    const int64_t last = ids_.offsets[static_cast<size_t>(end)];
    return ids_.values.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
  }

  void count_frequencies(TableStatistics& result) const {
    std::vector<int64_t> sorted(ids_.values.begin(), ids_.values.end());
    std::ranges::sort(sorted);
    std::vector<int64_t> counts;
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i == 0 || sorted[i] != sorted[i - 1]) counts.push_back(0);
      ++counts.back();
    }
    result.distinct = std::ssize(counts);
    if (counts.empty()) return;
    const auto num_hot = static_cast<int64_t>(static_cast<double>(in_use_) * kHot) + 1;
    const auto hot = counts.begin() + std::min(num_hot, result.distinct);
    std::ranges::partial_sort(counts, hot, std::greater<>());
    result.hot_share = static_cast<double>(std::accumulate(counts.begin(), hot, int64_t{0})) /
                       static_cast<double>(ids_.values.size());
  }

  // From draws of as many ids as the table has rows. Many more would use every row of a small
  // table, and say nothing of its skew.
  void fit_exponent(TableStatistics& result) const {
    const auto num_ids = std::ssize(ids_.values);
    if (num_ids == 0) return;
    const int64_t count = std::min(num_ids, in_use_), chunks = num_ids / count;
    int64_t distinct = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      const auto begin = ids_.values.begin() + c * count;
      std::vector<int64_t> drawn(begin, begin + count);
      std::ranges::sort(drawn);
      distinct += std::ranges::unique(drawn).begin() - drawn.begin();
    }
    result.exponent = fit_zipf(in_use_, static_cast<double>(count),
                               static_cast<double>(distinct) / static_cast<double>(chunks));
  }

  // Factor by which a batch of `wanted` samples uses more rows than one of `samples`.
  double growth(const TableStatistics& found, int64_t samples, int64_t wanted) const {
    const auto distinct = [&](int64_t count) {
      return expected_distinct(in_use_, found.exponent,
                               found.ids_per_sample * static_cast<double>(count));
    };
    const double fewer = distinct(samples);
    return samples >= wanted || fewer <= 0 ? 1 : distinct(wanted) / fewer;
  }

  // Both return the factor of what they count in a mean step.
  double count_ranks(const TableStatistics& found) {
    const int64_t B = shape_.samples_per_rank;
    const int64_t count = std::min(B, num_samples_), chunks = num_samples_ / count;
    for (int64_t c = 0; c < chunks; ++c) {
      const auto rank = static_cast<size_t>(c % shape_.num_ranks());
      const std::vector<uint8_t> subtrees = subtrees_of(rank, c * count, (c + 1) * count);
      count_ids({values(c * count, (c + 1) * count), subtrees}, ids_.rows, buckets_);
    }
    return growth(found, count, B) / static_cast<double>(chunks);
  }

  double count_steps(const TableStatistics& found) {
    const int64_t step = shape_.samples_per_rank * shape_.num_ranks();
    const int64_t count = std::min(step, num_samples_), chunks = num_samples_ / count;
    for (int64_t c = 0; c < chunks; ++c) {
      const RankIds ids{values(c * count, (c + 1) * count)};
      count_updates({&ids, 1}, ids_.rows, buckets_);
    }
    return growth(found, count, step) / static_cast<double>(chunks);
  }

  // The subtree of each id, as if the samples were the rank's first.
  std::vector<uint8_t> subtrees_of(size_t rank, int64_t begin, int64_t end) const {
    const std::vector<int64_t>& begins = shape_.subtrees[rank];
    std::vector<uint8_t> result;
    for (int64_t s = begin; s < end; ++s) {
      const auto tree = std::ranges::upper_bound(begins, s - begin) - begins.begin() - 1;
      const auto at = static_cast<size_t>(s);
      result.insert(result.end(), static_cast<size_t>(ids_.offsets[at + 1] - ids_.offsets[at]),
                    static_cast<uint8_t>(std::max<int64_t>(tree, 0)));
    }
    return result;
  }

  const SampledIds& ids_;
  const StepShape& shape_;
  int64_t num_samples_;
  int64_t in_use_;  // rows
  std::vector<RowCounts> buckets_;
};

}  // namespace

double expected_ids(std::span<const int64_t> values, double all) {
  const auto distinct = [](std::span<const int64_t> ids) {
    std::vector<int64_t> sorted(ids.begin(), ids.end());
    std::ranges::sort(sorted);
    return static_cast<double>(std::ranges::unique(sorted).begin() - sorted.begin());
  };
  const double found = distinct(values), read = static_cast<double>(values.size());
  if (values.size() < 2 || all <= read) return found;
  const double of_half = distinct(values.first(values.size() / 2));
  const double exponent = std::clamp(std::log2(found / of_half), 0.0, 1.0);
  return found * std::pow(all / read, exponent);
}

TableStatistics measure_table(const SampledIds& ids, const StepShape& shape) {
  TRIREME_ASSERT(ids.offsets.size() > 1, "no sample to measure");
  return Measuring(ids, shape).measure();
}

TableStatistics assume_zipf(int64_t rows, double exponent, double ids_per_sample,
                            const StepShape& shape) {
  const double of_rank = ids_per_sample * static_cast<double>(shape.samples_per_rank);
  const double of_all = of_rank * shape.num_ranks();
  RowCounts counts;
  counts.distinct = expected_distinct(rows, exponent, of_rank);
  counts.updated = expected_distinct(rows, exponent, of_all);
  // An id is in each subtree as if that were a batch of its own; the mean over the ranks.
  for (const auto& begins : shape.subtrees) {
    for (size_t k = 0; k < begins.size(); ++k) {
      const int64_t end = k + 1 < begins.size() ? begins[k + 1] : shape.samples_per_rank;
      counts.sums +=
          expected_distinct(rows, exponent, ids_per_sample * static_cast<double>(end - begins[k])) /
          shape.num_ranks();
    }
  }
  return {.ids_per_sample = ids_per_sample,
          .distinct = static_cast<int64_t>(counts.updated),
          .exponent = exponent,
          .hot_share = zipf_share(rows, exponent, kHot),
          .use = RowUse::even(rows, counts, most_subtrees(shape))};
}

namespace {

constexpr double kGrowth = 1.01;  // of the blocks of rare rows
constexpr double kMaxExponent = 4;

// The sum over i = 1 to rows of value(i).
template <typename Value>
double sum_by_blocks(int64_t rows, const Value& value) {
  double sum = 0;
  const auto end = static_cast<double>(rows) + 1;
  for (double begin = 1; begin < end;) {
    const double next = std::min(std::max(begin + 1, std::floor(begin * kGrowth)), end);
    sum += (next - begin) * value((begin + next - 1) / 2);
    begin = next;
  }
  return sum;
}

}  // namespace

double expected_distinct(int64_t rows, double exponent, double draws) {
  if (rows < 1 || draws <= 0) return 0;
  const double all = sum_by_blocks(rows, [&](double i) { return std::pow(i, -exponent); });
  return sum_by_blocks(rows, [&](double i) {
    const double p = std::pow(i, -exponent) / all;
    return p >= 1 ? 1 : -std::expm1(draws * std::log1p(-p));
  });
}

double zipf_share(int64_t rows, double exponent, double part) {
  const auto power = [&](double i) { return std::pow(i, -exponent); };
  const int64_t hot = std::min(rows, static_cast<int64_t>(static_cast<double>(rows) * part) + 1);
  return sum_by_blocks(hot, power) / sum_by_blocks(rows, power);
}

double fit_zipf(int64_t rows, double draws, double distinct) {
  double low = 0, high = kMaxExponent;
  if (distinct >= expected_distinct(rows, low, draws)) return low;
  if (distinct <= expected_distinct(rows, high, draws)) return high;
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (expected_distinct(rows, middle, draws) > distinct ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace trireme::plan
