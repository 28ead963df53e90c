#include "trireme/train/run/bad_samples.h"

#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

using Batches = std::vector<dataset::Batch>;

Batches read_all(dataset::BatchReader& reader, int64_t step, int64_t begin, int64_t end) {
  Batches batches;
  for (int64_t i = begin; i < end; ++i) batches.push_back(reader.read(step, i));
  return batches;
}

// The bad samples that one rank found in its microbatches.
struct Found {
  int64_t data_rank = 0;
  int64_t count = 0;
  bool failed = false;
};

// One number from each rank: the data rank, whether it failed, the count.
std::vector<Found> gather_found(comm::Communicator& world, const Found& mine) {
  constexpr int kCountBits = 40;  // a step has fewer samples
  const int64_t number = (2 * mine.data_rank + (mine.failed ? 1 : 0)) << kCountBits | mine.count;
  std::vector<Found> found;
  for (const int64_t each : comm::all_gather_numbers(world, number)) {
    const int64_t who = each >> kCountBits;
    found.push_back({who / 2, each & ((int64_t{1} << kCountBits) - 1), who % 2 != 0});
  }
  return found;
}

// The sum over data ranks. The ranks of each have read the same files.
int64_t sum_of(const std::vector<Found>& ranks) {
  std::map<int64_t, size_t> first_ranks;
  int64_t sum = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [first, is_new] = first_ranks.emplace(ranks[rank].data_rank, rank);
    if (is_new) sum += ranks[rank].count;
    TRIREME_CHECK(ranks[rank].count == ranks[first->second].count, "ranks ", first->second, " and ",
                  rank, " read the same samples, and ", ranks[first->second].count, " and ",
                  ranks[rank].count,
                  " of them are bad; expected the same files and no failing disk on every host");
  }
  return sum;
}

}  // namespace

std::vector<dataset::Batch> BadSamples::read(comm::Communicator& world,
                                             dataset::BatchReader& reader, int64_t step,
                                             int64_t begin, int64_t end) {
  if (most_ == 0) return read_all(reader, step, begin, end);
  Found mine{.data_rank = reader.loader().data_rank()};
  std::string first, last;  // of this rank's errors
  Batches batches;
  try {
    batches = read_all(reader, step, begin, end);
  } catch (const ConfigError& error) {
    mine.failed = true;
    first = last = error.what();
  }
  for (const dataset::Batch& batch : batches) {
    if (batch.bad_samples.empty()) continue;
    mine.count += std::ssize(batch.bad_samples);
    if (first.empty()) first = batch.bad_samples.front();
    last = batch.bad_samples.back();
  }
  const std::vector<Found> ranks = gather_found(world, mine);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].failed) throw ConfigError(comm::all_gather_strings(world, last)[rank]);
  }
  const int64_t found = sum_of(ranks);
  if (found == 0) return batches;
  const bool is_first = count_ == 0;
  count_ += found;
  if (!is_first && count_ <= most_) return batches;
  // Data ranks hold a step's samples in their order.
  const std::vector<std::string> firsts = comm::all_gather_strings(world, first);
  const std::vector<std::string> lasts = comm::all_gather_strings(world, last);
  std::map<int64_t, size_t> with_bad;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].count > 0) with_bad.emplace(ranks[rank].data_rank, rank);
  }
  TRIREME_CHECK(count_ <= most_, "data.skip_bad_samples is ", most_, " and ", count_,
                " samples cannot be read; the last: ", lasts[with_bad.rbegin()->second],
                "; repair or remove such files, or raise the key");
  finding_ = concat(
      "a sample cannot be read and the next takes its place; data.skip_bad_samples "
      "allows ",
      most_, ": ", firsts[with_bad.begin()->second]);
  return batches;
}

std::optional<int64_t> BadSamples::count() const {
  return most_ > 0 ? std::optional(count_) : std::nullopt;
}

std::optional<std::string> BadSamples::take_finding() {
  return std::exchange(finding_, std::nullopt);
}

}  // namespace trireme::train
