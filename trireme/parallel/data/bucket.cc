#include "trireme/parallel/data/bucket.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/round_up.h"

namespace trireme::parallel::inline internal {
namespace {

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
    if (!current.bucket.parameters.empty() && current.num_bytes + num_bytes > bucket_bytes) {
      buckets.push_back(std::exchange(current, {}).bucket);
    }
    add(current.bucket, index, parameter);
    current.num_bytes += num_bytes;
  }
  for (auto& [kind, rest] : open) {
    if (!rest.bucket.parameters.empty()) buckets.push_back(std::move(rest.bucket));
  }
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

}  // namespace trireme::parallel::inline internal
