#include "trireme/parallel/data/compression/top_k_hook.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {
namespace {

// All ranks' tensors: [ranks, k].
at::Tensor gather_rows(comm::Communicator& group, const at::Tensor& mine) {
  const at::Tensor all = at::empty({group.size(), mine.numel()}, mine.options());
  group.all_gather(all.unbind(0), mine)->wait();
  return all;
}

}  // namespace

TopKHook::TopKHook(double ratio) : ratio_(ratio) {
  TRIREME_CHECK(ratio > 0 && ratio <= 1, "the ratio of gradients to send is ", ratio,
                "; expected more than 0 and at most 1");
}

void TopKHook::prepare(std::span<const GradientSpec> gradients) {
  for (const GradientSpec& gradient : gradients) feedback_.add_gradient(gradient);
}

int64_t TopKHook::num_sent(int64_t num_elements) const {
  TRIREME_CHECK(num_elements <= std::numeric_limits<int32_t>::max(), "a parameter has ",
                num_elements, " elements; top-k sends places of 32 bits");
  return std::min(num_elements,
                  static_cast<int64_t>(std::ceil(ratio_ * static_cast<double>(num_elements))));
}

int64_t TopKHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  std::vector<at::Tensor> indices, values;  // for each gradient: [k] int64, [k]
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const at::Tensor& gradient = bucket.gradients[i];
    at::Tensor rest = feedback_.corrected(bucket.names[i], gradient);
    const at::Tensor flat = rest.view(-1);
    indices.push_back(std::get<1>(at::topk(flat.abs(), num_sent(flat.numel()), /*dim=*/0,
                                           /*largest=*/true, /*sorted=*/false)));
    values.push_back(flat.index_select(0, indices[i]).to(gradient.scalar_type()));
    flat.index_add_(0, indices[i], values[i].to(flat.scalar_type()), -1);
    feedback_.keep(bucket.names[i], rest);
  }
  const at::Tensor mine = at::cat(values);
  const at::Tensor all_indices = gather_rows(group, at::cat(indices).to(at::kInt));
  const at::Tensor all_values = gather_rows(group, mine).to(compute_dtype(bucket.flat.options()));
  int64_t begin = 0;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const int64_t count = indices[i].numel();
    const at::Tensor sum = at::zeros({bucket.gradients[i].numel()}, all_values.options());
    for (int r = 0; r < group.size(); ++r) {
      // A rank's indices are distinct, so each element gets one term per rank, in rank order.
      sum.index_add_(0, all_indices.select(0, r).narrow(0, begin, count),
                     all_values.select(0, r).narrow(0, begin, count));
    }
    bucket.gradients[i].copy_(sum.view(bucket.gradients[i].sizes()));
    begin += count;
  }
  return (group.size() - 1) * mine.numel() *
         static_cast<int64_t>(sizeof(int32_t) + mine.element_size());
}

}  // namespace trireme::parallel
