#include "trireme/parallel/data/partition.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

namespace trireme::parallel::inline internal {
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
  if (below < lowest) return above;
  return target - below <= above - target ? below : above;
}

}  // namespace

Grains grains_of(at::IntArrayRef shape) {
  Grains grains;
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

}  // namespace trireme::parallel::inline internal
