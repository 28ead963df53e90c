// Which parameters of a module travel together, and who holds what of them: its parameters in the
// order in which backward meets them, in buckets that are cut among ranks. A plan alone: holds no
// memory, no group, communicates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/bucket.h"
#include "trireme/parallel/data/partition.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

inline constexpr size_t kNoUnit = SIZE_MAX;

struct BucketPlan {
  // The module's, from the last to the first; one that several modules share is here once.
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<Bucket> buckets;
  std::vector<std::vector<int64_t>> cuts;  // one a bucket, see partition()
  std::vector<size_t> units;               // one a bucket; kNoUnit: of none
};

struct BucketPlanOptions {
  std::span<const Unit> units{};
  // A bucket has parameters of one unit alone: the last unit's buckets come first, those of none at
  // the end. false: units are checked, and their parameters lie as all others.
  bool apart = false;
  int64_t bucket_bytes = 4 << 20;
  PartitionOptions partition{};
};

// Throws: ConfigError when a unit has a parameter that is not the module's, or one of another unit
BucketPlan plan_buckets(const torch::nn::Module& module, const BucketPlanOptions& options);

}  // namespace trireme::parallel
