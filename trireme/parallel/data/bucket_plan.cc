#include "trireme/parallel/data/bucket_plan.h"

#include <algorithm>
#include <utility>

#include <torch/nn/module.h>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

// Backward meets the last layer first.
void collect_parameters(const torch::nn::Module& module, const Selects& selects, BucketPlan& plan) {
  for (const auto& item : module.named_parameters()) {
    if (selects && !selects(item.key())) continue;
    // A parameter that two modules share is listed twice.
    const auto same = [&](const at::Tensor& other) { return other.is_same(item.value()); };
    if (std::ranges::any_of(plan.parameters, same)) continue;
    plan.names.push_back(item.key());
    plan.parameters.push_back(item.value());
  }
  std::ranges::reverse(plan.names);
  std::ranges::reverse(plan.parameters);
}

// One unit per parameter; kNoUnit outside units.
std::vector<size_t> units_of_parameters(const torch::nn::Module& module, const BucketPlan& plan,
                                        std::span<const Unit> units) {
  const std::vector<at::Tensor> all = module.parameters();
  std::vector<size_t> unit_of(plan.parameters.size(), kNoUnit);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (const at::Tensor& parameter : units[unit].parameters) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
      const auto found = std::ranges::find_if(plan.parameters, same);
      if (found == plan.parameters.end() && std::ranges::any_of(all, same)) continue;  // another's
      TRIREME_CHECK(found != plan.parameters.end(), "unit \"", units[unit].name,
                    "\" has a parameter of shape ", parameter.sizes(),
                    " that is not the module's; expected parts of the wrapped module");
      const auto index = static_cast<size_t>(found - plan.parameters.begin());
      size_t& owner = unit_of[index];
      TRIREME_CHECK(owner == kNoUnit || owner == unit, "parameter \"", plan.names[index],
                    "\" is in unit \"", units[owner == kNoUnit ? unit : owner].name, "\" and in \"",
                    units[unit].name, "\"; put what is shared into one unit");
      owner = unit;
    }
  }
  return unit_of;
}

void add_buckets(size_t unit, const std::vector<size_t>& unit_of, int64_t bucket_bytes,
                 BucketPlan& plan) {
  std::vector<size_t> members;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    if (unit_of[i] != unit) continue;
    members.push_back(i);
    tensors.push_back(plan.parameters[i]);
  }
  for (Bucket& bucket : make_buckets(tensors, bucket_bytes)) {
    for (size_t& index : bucket.parameters) index = members[index];
    plan.buckets.push_back(std::move(bucket));
    plan.units.push_back(unit);
  }
}

}  // namespace

BucketPlan plan_buckets(const torch::nn::Module& module, const BucketPlanOptions& options) {
  BucketPlan plan;
  collect_parameters(module, options.selects, plan);
  std::vector<size_t> unit_of = units_of_parameters(module, plan, options.units);
  if (!options.apart) std::ranges::fill(unit_of, kNoUnit);
  for (size_t unit = options.units.size(); unit-- > 0;) {
    add_buckets(unit, unit_of, options.bucket_bytes, plan);
  }
  add_buckets(kNoUnit, unit_of, options.bucket_bytes, plan);
  plan.cuts = partition(plan.buckets, plan.parameters, options.partition);
  return plan;
}

}  // namespace trireme::parallel::inline internal
