#include "trireme/tasks/recommend/metrics/click_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

constexpr size_t kMinPending = 1 << 16;
// Scores that each rank offers as limits of ranges.
constexpr int64_t kNumOffered = 256;

constexpr uint32_t kSign = uint32_t{1} << 31;

// Negative numbers are ordered by falling bits, positive ones by rising bits.
uint32_t key_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0F);  // -0 becomes +0
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

at::Tensor view(std::vector<int64_t>& numbers) {
  return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kLong);
}

// Blocks of `sizes` elements of one tensor.
std::vector<at::Tensor> blocks_of(const at::Tensor& all, std::span<const int64_t> sizes,
                                  int64_t factor = 1) {
  std::vector<at::Tensor> blocks;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    blocks.push_back(all.narrow(0, begin, size * factor));
    begin += size * factor;
  }
  return blocks;
}

}  // namespace

void AreaUnderCurve::Counts::append(uint32_t key, int64_t num_positives, int64_t num_negatives) {
  if (keys.empty() || keys.back() != key) {
    keys.push_back(key);
    positives.push_back(0);
    negatives.push_back(0);
  }
  positives.back() += num_positives;
  negatives.back() += num_negatives;
}

void AreaUnderCurve::Sum::append(const Sum& higher) {
  twice_wins += higher.twice_wins + Pairs{2} * static_cast<uint64_t>(higher.num_positives) *
                                        static_cast<uint64_t>(num_negatives);
  num_positives += higher.num_positives;
  num_negatives += higher.num_negatives;
}

double AreaUnderCurve::Sum::area() const {
  const Pairs pairs =
      Pairs{static_cast<uint64_t>(num_positives)} * static_cast<uint64_t>(num_negatives);
  if (pairs == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(twice_wins) / static_cast<double>(2 * pairs);
}

void AreaUnderCurve::add(const at::Tensor& scores, const at::Tensor& labels) {
  TRIREME_CHECK(scores.numel() == labels.numel(), scores.numel(), " scores and ", labels.numel(),
                " labels; expected as many");
  const at::Tensor score = scores.detach().to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor label = labels.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* const s = score.const_data_ptr<float>();
  const float* const y = label.const_data_ptr<float>();
  for (int64_t i = 0; i < score.numel(); ++i) {
    TRIREME_CHECK(y[i] == 0 || y[i] == 1, "label ", y[i], " of sample ", i, "; expected 0 or 1");
  }
  for (int64_t i = 0; i < score.numel(); ++i) {
    const bool is_positive = y[i] == 1;
    (is_positive ? num_positives_ : num_negatives_) += 1;
    num_nan_ += std::isnan(s[i]) ? 1 : 0;
    pending_.push_back(uint64_t{key_of(s[i])} * 2 + (is_positive ? 1 : 0));
  }
  if (pending_.size() >= std::max(kMinPending, counts_.keys.size() / 4)) settle();
}

void AreaUnderCurve::merge(const AreaUnderCurve& other) {
  counts_ = merged(counts_, other.counts_);
  const std::vector<uint64_t> pending = other.pending_;  // `other` may be this
  pending_.insert(pending_.end(), pending.begin(), pending.end());
  num_positives_ += other.num_positives_;
  num_negatives_ += other.num_negatives_;
  num_nan_ += other.num_nan_;
  settle();
}

void AreaUnderCurve::settle() {
  if (pending_.empty()) return;
  std::ranges::sort(pending_);
  Counts added;
  for (const uint64_t sample : pending_) {
    const int64_t is_positive = sample % 2 == 1 ? 1 : 0;
    added.append(static_cast<uint32_t>(sample / 2), is_positive, 1 - is_positive);
  }
  pending_.clear();
  counts_ = counts_.keys.empty() ? std::move(added) : merged(counts_, added);
}

AreaUnderCurve::Counts AreaUnderCurve::merged(const Counts& a, const Counts& b) {
  Counts all;
  all.keys.reserve(a.keys.size() + b.keys.size());
  all.positives.reserve(all.keys.capacity());
  all.negatives.reserve(all.keys.capacity());
  size_t i = 0;
  size_t j = 0;
  while (i < a.keys.size() || j < b.keys.size()) {
    const bool is_a = j == b.keys.size() || (i < a.keys.size() && a.keys[i] <= b.keys[j]);
    const Counts& from = is_a ? a : b;
    const size_t at = is_a ? i++ : j++;
    all.append(from.keys[at], from.positives[at], from.negatives[at]);
  }
  return all;
}

AreaUnderCurve::Sum AreaUnderCurve::sum_of(const Counts& counts) {
  Sum sum;
  for (size_t i = 0; i < counts.keys.size(); ++i) {
    const Pairs ties = Pairs{static_cast<uint64_t>(counts.positives[i])} *
                       static_cast<uint64_t>(counts.negatives[i]);
    sum.append({ties, counts.positives[i], counts.negatives[i]});
  }
  return sum;
}

int64_t AreaUnderCurve::num_distinct() {
  settle();
  return std::ssize(counts_.keys);
}

double AreaUnderCurve::local_area() {
  settle();
  return num_nan_ > 0 ? std::numeric_limits<double>::quiet_NaN() : sum_of(counts_).area();
}

double AreaUnderCurve::gather_area(comm::Communicator& group) {
  settle();
  const Sum own = sum_of(exchange(group, gather_ranges(group)));
  constexpr int64_t kNumbers = 5;
  std::vector<int64_t> sent = {static_cast<int64_t>(static_cast<uint64_t>(own.twice_wins)),
                               static_cast<int64_t>(static_cast<uint64_t>(own.twice_wins >> 64)),
                               own.num_positives, own.num_negatives, num_nan_};
  const at::Tensor all = at::empty({group.size(), kNumbers}, at::kLong);
  group.all_gather(all.unbind(0), view(sent))->wait();
  Sum sum;
  bool has_nan = false;
  for (int64_t r = 0; r < group.size(); ++r) {
    const int64_t* const range = all.const_data_ptr<int64_t>() + r * kNumbers;
    const Pairs high = static_cast<uint64_t>(range[1]);
    sum.append({high << 64 | static_cast<uint64_t>(range[0]), range[2], range[3]});
    has_nan = has_nan || range[4] > 0;
  }
  return has_nan ? std::numeric_limits<double>::quiet_NaN() : sum.area();
}

// Where the ranges of the ranks begin in counts_, and its end. Each rank offers some of its scores,
// evenly spaced; each stands for as many of its scores.
std::vector<size_t> AreaUnderCurve::gather_ranges(comm::Communicator& group) const {
  const int64_t size = std::ssize(counts_.keys);
  const int64_t num_offered = std::min(size, kNumOffered);
  std::vector<int64_t> sent(static_cast<size_t>(2 * kNumOffered), 0);  // key, number of scores
  for (int64_t i = 0; i < num_offered; ++i) {
    const int64_t begin = i * size / num_offered;
    sent[static_cast<size_t>(2 * i)] = counts_.keys[static_cast<size_t>(begin)];
    sent[static_cast<size_t>(2 * i + 1)] = (i + 1) * size / num_offered - begin;
  }
  const at::Tensor all = at::empty({group.size(), 2 * kNumOffered}, at::kLong);
  group.all_gather(all.unbind(0), view(sent))->wait();

  std::vector<std::pair<int64_t, int64_t>> offered;
  int64_t total = 0;
  for (int64_t i = 0; i < group.size() * kNumOffered; ++i) {
    const int64_t* const pair = all.const_data_ptr<int64_t>() + 2 * i;
    if (pair[1] > 0) offered.emplace_back(pair[0], pair[1]);
    total += pair[1];
  }
  std::ranges::sort(offered);
  std::vector<size_t> begins = {0};
  int64_t before = 0;
  for (const auto& [key, count] : offered) {
    while (std::ssize(begins) < group.size() &&
           before >= total / group.size() * std::ssize(begins)) {
      const auto begin = std::ranges::lower_bound(counts_.keys, static_cast<uint32_t>(key));
      begins.push_back(static_cast<size_t>(begin - counts_.keys.begin()));
    }
    before += count;
  }
  begins.resize(static_cast<size_t>(group.size()) + 1, counts_.keys.size());
  return begins;
}

// This rank's range of all ranks' counts.
AreaUnderCurve::Counts AreaUnderCurve::exchange(comm::Communicator& group,
                                                std::span<const size_t> begins) const {
  const auto num_ranks = static_cast<size_t>(group.size());
  std::vector<int64_t> sent_sizes;
  for (size_t r = 0; r < num_ranks; ++r) {
    sent_sizes.push_back(static_cast<int64_t>(begins[r + 1] - begins[r]));
  }
  std::vector<int64_t> sizes(num_ranks);
  const std::vector<int64_t> ones(num_ranks, 1);
  group.all_to_all(blocks_of(view(sizes), ones), blocks_of(view(sent_sizes), ones))->wait();

  const int64_t num_sent = std::ssize(counts_.keys);
  const at::Tensor sent_keys = at::empty({num_sent}, at::kInt);
  const at::Tensor sent_counts = at::empty({2 * num_sent}, at::kLong);
  for (int64_t i = 0; i < num_sent; ++i) {
    const auto at = static_cast<size_t>(i);
    sent_keys.mutable_data_ptr<int32_t>()[i] = std::bit_cast<int32_t>(counts_.keys[at]);
    sent_counts.mutable_data_ptr<int64_t>()[2 * i] = counts_.positives[at];
    sent_counts.mutable_data_ptr<int64_t>()[2 * i + 1] = counts_.negatives[at];
  }
  int64_t num_received = 0;
  for (const int64_t size : sizes) num_received += size;
  const at::Tensor keys = at::empty({num_received}, at::kInt);
  const at::Tensor counts = at::empty({2 * num_received}, at::kLong);
  group.all_to_all(blocks_of(keys, sizes), blocks_of(sent_keys, sent_sizes))->wait();
  group.all_to_all(blocks_of(counts, sizes, 2), blocks_of(sent_counts, sent_sizes, 2))->wait();

  Counts all;
  int64_t i = 0;
  for (const int64_t size : sizes) {
    Counts part;
    for (const int64_t end = i + size; i < end; ++i) {
      const int64_t* const count = counts.const_data_ptr<int64_t>() + 2 * i;
      part.append(std::bit_cast<uint32_t>(keys.const_data_ptr<int32_t>()[i]), count[0], count[1]);
    }
    all = merged(all, part);
  }
  return all;
}

at::Tensor normalised_entropy_state(const at::Tensor& logits_B, const at::Tensor& labels_B) {
  const at::Tensor logits = logits_B.detach().to(at::kDouble);
  const at::Tensor labels = labels_B.detach().to(at::kDouble);
  const at::Tensor loss =
      at::binary_cross_entropy_with_logits(logits, labels, {}, {}, at::Reduction::Sum);
  const at::Tensor positives = labels.sum();
  const at::Tensor all = at::full_like(positives, static_cast<double>(labels.numel()));
  return at::stack({loss, positives, all});
}

double normalised_entropy(std::span<const double> state) {
  const double sum = state[0];
  const double positives = state[1];
  const double negatives = state[2] - positives;
  if (!(positives > 0 && negatives > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double entropy =
      -(positives * std::log(positives / state[2]) + negatives * std::log(negatives / state[2]));
  return sum / entropy;
}

}  // namespace trireme::tasks
