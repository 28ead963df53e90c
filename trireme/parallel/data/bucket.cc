#include "trireme/parallel/data/bucket.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

namespace trireme::parallel {
namespace {

using Kind = std::pair<at::ScalarType, std::pair<at::DeviceType, at::DeviceIndex>>;

Kind kind_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), {tensor.device().type(), tensor.device().index()}};
}

// Allocates the flat tensor and cuts it into one view a parameter.
void fill(Bucket& bucket, std::span<const at::Tensor> parameters, const Allocate& allocate) {
  int64_t num_elements = 0;
  for (size_t index : bucket.parameters) num_elements += parameters[index].numel();
  const at::Tensor& first = parameters[bucket.parameters.front()];
  bucket.flat = allocate(num_elements, first).zero_();
  int64_t offset = 0;
  for (size_t index : bucket.parameters) {
    const at::Tensor& parameter = parameters[index];
    bucket.gradients.push_back(
        bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int64_t bucket_bytes,
                                 const Allocate& allocate) {
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
    current.bucket.parameters.push_back(index);
    current.num_bytes += num_bytes;
  }
  for (auto& [kind, rest] : open) {
    if (!rest.bucket.parameters.empty()) buckets.push_back(std::move(rest.bucket));
  }
  std::ranges::sort(buckets, {}, [](const Bucket& bucket) { return bucket.parameters.back(); });
  for (Bucket& bucket : buckets) fill(bucket, parameters, allocate);
  return buckets;
}

}  // namespace trireme::parallel
