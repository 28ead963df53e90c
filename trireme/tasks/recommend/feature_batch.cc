#include "trireme/tasks/recommend/feature_batch.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {

parallel::JaggedIds ids_of_columns(const at::Tensor& ids_BK, const at::Tensor& lengths_BC,
                                   std::span<const int64_t> columns) {
  const int64_t B = ids_BK.size(0), K = ids_BK.size(1), C = lengths_BC.size(1);
  const at::Tensor ids = ids_BK.contiguous(), lengths = lengths_BC.contiguous();
  const auto* const id = ids.const_data_ptr<int64_t>();
  const auto* const length = lengths.const_data_ptr<int64_t>();
  std::vector<int64_t> begins(static_cast<size_t>(B * C));  // within `id`
  int64_t total = 0;
  for (int64_t b = 0; b < B; ++b) {
    int64_t at = b * K;
    for (int64_t c = 0; c < C; ++c) {
      const int64_t count = length[b * C + c];
      begins[static_cast<size_t>(b * C + c)] = at;
      TRIREME_CHECK(count >= 0 && count <= (b + 1) * K - at, "sample ", b,
                    " of a batch has more ids than its ", K, " places");
      at += count;
    }
    for (const int64_t c : columns) total += length[b * C + c];
  }
  const auto num_lists = std::ssize(columns) * B;
  const at::Tensor values = at::empty({total}, at::kLong);
  const at::Tensor offsets = at::empty({num_lists + 1}, at::kLong);
  auto* const first_value = values.mutable_data_ptr<int64_t>();
  auto* value = first_value;
  auto* offset = offsets.mutable_data_ptr<int64_t>();
  for (const int64_t c : columns) {
    for (int64_t b = 0; b < B; ++b) {
      *offset++ = value - first_value;
      value = std::copy_n(id + begins[static_cast<size_t>(b * C + c)], length[b * C + c], value);
    }
  }
  *offset = value - first_value;
  return {.values = values, .offsets = offsets, .num_samples = B};
}

}  // namespace trireme::tasks::inline internal
