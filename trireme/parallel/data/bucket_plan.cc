#include "trireme/parallel/data/bucket_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"

namespace trireme::parallel {
namespace {

// Tensors of one kind can lie in one flat tensor and go in one call.
using Kind = std::tuple<at::ScalarType, at::DeviceType, at::DeviceIndex, bool>;

Kind kind_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index(),
          tensor.requires_grad()};
}

void add(Bucket& bucket, size_t index, const at::Tensor& parameter) {
  if (bucket.parameters.empty()) {
    bucket.options = at::TensorOptions(parameter.device()).dtype(parameter.scalar_type());
    bucket.is_trained = parameter.requires_grad();
  }
  bucket.parameters.push_back(index);
  bucket.offsets.push_back(bucket.num_elements);
  const auto alignment =
      // Each parameter is aligned for vector loads.
      static_cast<size_t>(kBucketAlignmentBytes / static_cast<int64_t>(parameter.element_size()));
  bucket.num_elements +=
      static_cast<int64_t>(round_up(static_cast<size_t>(parameter.numel()), alignment));
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int64_t bucket_bytes) {
  struct Open {
    Bucket bucket;
    int64_t num_bytes = 0;
  };
  std::map<Kind, Open> open;
  std::vector<Bucket> buckets;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& parameter = parameters[index];
    const auto num_bytes = static_cast<int64_t>(parameter.nbytes());
    Open& current = open[kind_of(parameter)];
    // A parameter larger than the limit gets a bucket of its own.
    if (!current.bucket.parameters.empty() && current.num_bytes + num_bytes > bucket_bytes) {
      buckets.push_back(std::exchange(current, {}).bucket);
    }
    add(current.bucket, index, parameter);
    current.num_bytes += num_bytes;
  }
  for (auto& [kind, rest] : open) {
    if (!rest.bucket.parameters.empty()) buckets.push_back(std::move(rest.bucket));
  }
  // By the parameter that comes last in backward: only then is the bucket complete.
  std::ranges::sort(buckets, {}, [](const Bucket& bucket) { return bucket.parameters.back(); });
  return buckets;
}

std::vector<at::Tensor> view_parameters(const Bucket& bucket, const at::Tensor& flat,
                                        std::span<const at::Tensor> parameters) {
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[bucket.parameters[i]];
    views.push_back(flat.narrow(0, bucket.offsets[i], parameter.numel()).view(parameter.sizes()));
  }
  return views;
}

// Cuts balance elements over all buckets together and not within each, so that many small buckets
// with a remainder each do not all favour one rank. A cut may lie only where a layout can say it:
// at whole rows of a parameter, and at multiples that keep each shard aligned. So the nearest
// possible cut is taken, and the next bucket makes up for the difference. Frozen and trained
// parameters are balanced apart, because only trained ones have gradients and optimizer states.

namespace {

constexpr int64_t kGrainElements = 1024;
constexpr int64_t kGrainMultiple = 64;

// The possible cut of the bucket that is nearest to `target`, not below `lowest`.
int64_t nearest_cut(const Bucket& bucket, std::span<const at::Tensor> parameters, int64_t target,
                    int64_t lowest, bool whole_parameters) {
  if (bucket.offsets.empty()) return bucket.num_elements;
  target = std::clamp(target, lowest, bucket.num_elements);
  const auto after = std::ranges::upper_bound(bucket.offsets, target);
  const auto i = static_cast<size_t>(std::max<int64_t>(0, after - bucket.offsets.begin() - 1));
  const int64_t begin = bucket.offsets[i];
  const int64_t end = i + 1 < bucket.offsets.size() ? bucket.offsets[i + 1] : bucket.num_elements;
  int64_t below = begin;
  int64_t above = end;
  if (!whole_parameters) {
    const at::Tensor& parameter = parameters[bucket.parameters[i]];
    const Grains grains = grains_of(parameter.sizes());
    const int64_t grain = std::max<int64_t>(0, target - begin) / grains.elements;
    if (grain < grains.count) below = begin + grain * grains.elements;
    if (grain + 1 < grains.count) above = begin + (grain + 1) * grains.elements;
  }
  // Cuts must not go back.
  if (below < lowest) return above;
  return target - below <= above - target ? below : above;
}

}  // namespace

Grains grains_of(at::IntArrayRef shape) {
  Grains grains;
  // A leading dimension of 1 cannot be cut.
  while (grains.dim + 1 < static_cast<int>(shape.size()) && shape[grains.dim] == 1) ++grains.dim;
  for (size_t d = static_cast<size_t>(grains.dim) + 1; d < shape.size(); ++d) {
    grains.row_elements *= shape[d];
  }
  const int64_t length = shape.empty() ? 1 : shape[grains.dim];
  const int64_t row = std::max<int64_t>(1, grains.row_elements);
  const int64_t multiple = kGrainMultiple / std::gcd(kGrainMultiple, row);
  const int64_t fewest = (kGrainElements + row - 1) / row;
  grains.rows = (fewest + multiple - 1) / multiple * multiple;
  if (grains.rows >= length) grains.rows = std::max<int64_t>(1, length);
  grains.elements = grains.rows * row;
  grains.count = grains.row_elements == 0 ? 0 : (length + grains.rows - 1) / grains.rows;
  return grains;
}

std::vector<std::vector<int64_t>> partition(std::span<const Bucket> buckets,
                                            std::span<const at::Tensor> parameters,
                                            const PartitionOptions& options) {
  const int ranks = options.num_ranks;
  // Elements that each rank has so far, of frozen and of trained parameters.
  std::array<std::vector<int64_t>, 2> loads;
  loads.fill(std::vector<int64_t>(static_cast<size_t>(ranks)));
  std::vector<std::vector<int64_t>> result;
  for (const Bucket& bucket : buckets) {
    std::vector<int64_t>& load = loads[bucket.is_trained];
    const int64_t total = std::accumulate(load.begin(), load.end(), bucket.num_elements);
    std::vector<int64_t> cuts{0};
    int64_t before = 0;  // elements of the ranks below the cut
    for (int rank = 1; rank < ranks; ++rank) {
      before += load[static_cast<size_t>(rank) - 1];
      cuts.push_back(nearest_cut(bucket, parameters, total * rank / ranks - before, cuts.back(),
                                 options.whole_parameters));
    }
    cuts.push_back(bucket.num_elements);
    for (size_t rank = 0; rank + 1 < cuts.size(); ++rank) load[rank] += cuts[rank + 1] - cuts[rank];
    // Remembered over buckets.
    result.push_back(std::move(cuts));
  }
  return result;
}

mesh::Layout layout_of(const Bucket& bucket, size_t index, at::IntArrayRef shape,
                       std::span<const int64_t> cuts) {
  const int ranks = static_cast<int>(cuts.size()) - 1;
  std::vector<int64_t> whole = shape.empty() ? std::vector<int64_t>{1} : shape.vec();
  const mesh::Axis axis{"shard", ranks};
  if (ranks == 1) return {std::move(whole), {axis}};
  const Grains grains = grains_of(shape);
  const int64_t length = whole[static_cast<size_t>(grains.dim)];
  std::vector<int64_t> rows;
  for (const int64_t cut : cuts) {
    const int64_t elements = std::max<int64_t>(0, cut - bucket.offsets[index]);
    rows.push_back(std::min(length, elements / std::max<int64_t>(1, grains.row_elements)));
  }
  rows.back() = length;  // also for a parameter without elements
  return {std::move(whole), {axis}, {mesh::Placement::sharded(grains.dim, std::move(rows))}};
}

at::Tensor view_shard(const Bucket& bucket, size_t index, const mesh::Layout& layout,
                      std::span<const int64_t> cuts, int rank, const at::Tensor& part) {
  const mesh::Box box = layout.local_box(layout.num_ranks() == 1 ? 0 : rank);
  const auto at = static_cast<size_t>(rank);
  // If a part begins inside the parameter, it begins at the bucket's cut.
  const int64_t offset = std::max<int64_t>(0, bucket.offsets[index] - cuts[at]);
  return part.narrow(0, box.numel() == 0 ? 0 : offset, box.numel()).view(box.size);
}

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
      // A parameter in two units would be gathered and released by both.
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
  // Only ZeRO-3 releases units; otherwise buckets may span them and be fuller.
  if (!options.apart) std::ranges::fill(unit_of, kNoUnit);
  // Backward meets the last unit first.
  for (size_t unit = options.units.size(); unit-- > 0;) {
    add_buckets(unit, unit_of, options.bucket_bytes, plan);
  }
  add_buckets(kNoUnit, unit_of, options.bucket_bytes, plan);
  plan.cuts = partition(plan.buckets, plan.parameters, options.partition);
  return plan;
}

}  // namespace trireme::parallel
