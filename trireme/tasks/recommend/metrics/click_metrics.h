// Metrics of clicks. The area under the ROC curve of a score, exactly: the share of (positive,
// negative) pairs in which the positive has the higher score; equal scores count half. Scores are
// counted, not binned. Normalised entropy: the mean cross-entropy divided by the entropy of the
// share of positives. Below 1, predictions are better than always predicting that share. Its state
// is that of a train::Metric (train/task/task_metrics.h).
// Source: He et al. 2014, "Practical lessons from predicting clicks on ads at Facebook", section 3
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::tasks {

// All arithmetic up to the last division is on integers, so neither the order of samples nor their
// division among objects or ranks changes a bit.
// Memory: 20 bytes per distinct score, and 8 per recent sample; those are at most 65,536, or a
//         quarter of the distinct scores if that is more. There are at most 2^32 distinct scores.
// Thread safety: one thread.
// Source: Hanley & McNeil 1982, "The meaning and use of the area under a receiver operating
//         characteristic (ROC) curve"
class AreaUnderCurve {
 public:
  // A NaN among the scores makes the area NaN. Zeros of both signs are equal.
  // Shapes: scores of a floating-point dtype, rounded to fp32; as many labels, 0 or 1, of any
  //         dtype; any shape and device
  // Throws: ConfigError for any other label, or if the numbers of scores and labels differ
  void add(const at::Tensor& scores, const at::Tensor& labels);
  // Adds the samples of `other`.
  void merge(const AreaUnderCurve& other);
  void clear() { *this = {}; }

  int64_t num_positives() const { return num_positives_; }
  int64_t num_negatives() const { return num_negatives_; }
  int64_t num_distinct();

  // The area of this object's samples. NaN unless there are positives and negatives.
  double local_area();

  // The area of all ranks' samples, on every rank, with the same bits as local_area() after a merge
  // of all. Each rank counts the pairs in one range of scores; the ranges are about equally full. A
  // rank may have no samples.
  // Comm:    20 bytes for each distinct score of this rank in another rank's range, and for every
  //          other rank 4144 bytes
  // Memory:  20 bytes for each distinct score of each rank in this rank's range, up to twice
  // Collective: every rank of the group
  double gather_area(comm::Communicator& group);

 private:
  // Scores as integers in the same order, ascending, and the number of samples of each class that
  // have each score.
  struct Counts {
    std::vector<uint32_t> keys;
    std::vector<int64_t> positives;
    std::vector<int64_t> negatives;
    void append(uint32_t key, int64_t num_positives, int64_t num_negatives);
  };
  __extension__ using Pairs = unsigned __int128;
  struct Sum {
    Pairs twice_wins = 0;  // twice the pairs in which the positive is higher, and once the ties
    int64_t num_positives = 0;
    int64_t num_negatives = 0;
    void append(const Sum& higher);  // of higher scores
    double area() const;
  };

  static Counts merged(const Counts& a, const Counts& b);
  static Sum sum_of(const Counts& counts);
  void settle();
  std::vector<size_t> gather_ranges(comm::Communicator& group) const;
  Counts exchange(comm::Communicator& group, std::span<const size_t> begins) const;

  Counts counts_;
  std::vector<uint64_t> pending_;  // 2 * key + label, of samples that counts_ lacks
  int64_t num_positives_ = 0;
  int64_t num_negatives_ = 0;
  int64_t num_nan_ = 0;
};

// (sum of cross-entropies in nats, positives, all)
inline constexpr int64_t kNormalisedEntropySize = 3;

// Shapes: logits_B [B], labels_B [B], 0 or 1 -> [kNormalisedEntropySize] fp64
at::Tensor normalised_entropy_state(const at::Tensor& logits_B, const at::Tensor& labels_B);

// NaN unless there are positives and negatives.
double normalised_entropy(std::span<const double> state);

}  // namespace trireme::tasks
