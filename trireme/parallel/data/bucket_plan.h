// Plans which parameters of a module are communicated together and which rank holds what.
// Parameters are in the order in which backward meets them, in buckets that are cut among ranks.
// Only a plan: owns no memory and no group, and never communicates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/bucket.h"
#include "trireme/parallel/data/partition.h"
#include "trireme/parallel/data/same_module.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel::inline internal {

inline constexpr size_t kNoUnit = SIZE_MAX;

struct BucketPlan {
  // The module's selected parameters, from the last to the first. A parameter that several modules
  // share appears once.
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<Bucket> buckets;
  std::vector<std::vector<int64_t>> cuts;  // one list per bucket, see partition()
  std::vector<size_t> units;               // one per bucket; kNoUnit: outside all units
};

struct BucketPlanOptions {
  Selects selects{};
  std::span<const Unit> units{};
  // Each bucket has parameters of only one unit. The last unit's buckets come first; those outside
  // all units come last. false: units are only checked, and their parameters are treated like all
  // others.
  bool apart = false;
  int64_t bucket_bytes = 4 << 20;
  PartitionOptions partition{};
};

// Throws: ConfigError when a unit has a parameter that the module lacks or that another unit has
BucketPlan plan_buckets(const torch::nn::Module& module, const BucketPlanOptions& options);

}  // namespace trireme::parallel::inline internal
