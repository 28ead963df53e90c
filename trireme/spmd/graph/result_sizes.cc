#include "trireme/spmd/graph/result_sizes.h"

#include <map>

#include <ATen/WrapDimUtils.h>

namespace trireme::spmd {
namespace {

using Sizes = std::vector<int64_t>;
using All = std::vector<ResultSizes>;

ResultSizes like(const at::Tensor& tensor) {
  if (!tensor.defined()) return {.is_defined = false};
  return {.sizes = tensor.sizes().vec(), .dtype = tensor.scalar_type()};
}
ResultSizes like(const OperatorCall& call, size_t tensor) { return like(call.tensors()[tensor]); }
ResultSizes of(Sizes sizes, const at::Tensor& tensor) {
  return {.sizes = std::move(sizes), .dtype = tensor.scalar_type()};
}

template <size_t tensor>
All one_like(const OperatorCall& call) {
  return {like(call, tensor)};
}
template <size_t a, size_t b, size_t c>
All three_like(const OperatorCall& call) {
  return {like(call, a), like(call, b), like(call, c)};
}

// Statistics of the last `normalized` dimensions.
ResultSizes row_statistics(const at::Tensor& x, size_t normalized) {
  Sizes sizes = x.sizes().vec();
  for (size_t dim = sizes.size() - normalized; dim < sizes.size(); ++dim) sizes[dim] = 1;
  return of(std::move(sizes), x);
}
All layer_norm(const OperatorCall& call) {
  const ResultSizes rows = row_statistics(call.tensors()[0], call[1].toIntVector().size());
  return {like(call, 0), rows, rows};
}
All rms_norm(const OperatorCall& call) {
  return {like(call, 0), row_statistics(call.tensors()[0], call[1].toIntVector().size())};
}
All rms_norm_backward(const OperatorCall& call) { return {like(call, 1), like(call, 3)}; }

All batch_norm(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  return {like(x), of({x.size(1)}, x), of({x.size(1)}, x)};
}
// Gradients of the input and of [C] weight and bias; tensors: grad, x, weight or none, ...
All channel_norm_backward(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[1];
  return {like(x), of({x.size(1)}, x), of({x.size(1)}, x)};
}
// x, weight, bias, N, C, HxW, groups
All group_norm(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const ResultSizes groups = of({call[3].toInt(), call[6].toInt()}, x);
  return {like(x), groups, groups};
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
All convolution(const OperatorCall& call) {
  const at::Tensor &x = call.tensors()[0], &w = call.tensors()[1];
  const bool is_transposed = call[6].toBool();
  const auto at = [](const Sizes& values, int64_t dim) {
    return values[values.size() == 1 ? 0 : dim];
  };
  const Sizes stride = call[3].toIntVector(), padding = call[4].toIntVector(),
              dilation = call[5].toIntVector(), more = call[7].toIntVector();
  Sizes sizes = {x.size(0), is_transposed ? w.size(1) * call[8].toInt() : w.size(0)};
  for (int64_t dim = 2; dim < x.dim(); ++dim) {
    const int64_t i = dim - 2, reach = at(dilation, i) * (w.size(dim) - 1) + 1;
    sizes.push_back(is_transposed ? (x.size(dim) - 1) * at(stride, i) - 2 * at(padding, i) + reach +
                                        at(more, i)
                                  : (x.size(dim) + 2 * at(padding, i) - reach) / at(stride, i) + 1);
  }
  return {of(std::move(sizes), x)};
}
All convolution_backward(const OperatorCall& call) {
  const at::Tensor &x = call.tensors()[1], &w = call.tensors()[2];
  const auto wanted = call[10].toBoolList();
  const int64_t out = call.tensors()[0].size(1);
  All all = {like(x), like(w), of({out}, w)};
  for (size_t i = 0; i < all.size(); ++i) all[i].is_defined = wanted.get(i);
  return all;
}

All index_select(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  Sizes sizes = x.sizes().vec();
  if (!sizes.empty())
    sizes[at::maybe_wrap_dim(call[1].toInt(), x.dim())] = call.tensors()[1].numel();
  return {of(std::move(sizes), x)};
}
All embedding(const OperatorCall& call) {
  Sizes sizes = call.tensors()[1].sizes().vec();
  sizes.push_back(call.tensors()[0].size(1));
  return {of(std::move(sizes), call.tensors()[0])};
}
All embedding_backward(const OperatorCall& call) {
  const at::Tensor& gradient = call.tensors()[0];
  return {of({call[2].toInt(), gradient.size(-1)}, gradient)};
}

All adaptive_pool(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  Sizes sizes = x.sizes().vec();
  const Sizes last = call[1].toIntVector();
  std::copy(last.begin(), last.end(), sizes.end() - static_cast<int64_t>(last.size()));
  return {of(std::move(sizes), x)};
}

// The second result: one number for each row of heads.
All attention(const OperatorCall& call) {
  const at::Tensor &q = call.tensors()[0], &v = call.tensors()[2];
  Sizes out = q.sizes().vec();
  out.back() = v.size(-1);
  const at::ScalarType dtype = c10::promoteTypes(q.scalar_type(), at::kFloat);
  return {of(std::move(out), q), {.sizes = {q.size(0), q.size(1), q.size(2)}, .dtype = dtype}};
}

All dropout(const OperatorCall& call) {
  ResultSizes mask = like(call, 0);
  mask.dtype = at::kBool;
  return {like(call, 0), mask};
}

}  // namespace

MakeResultSizes result_sizes_of(const std::string& name) {
  static const std::map<std::string, MakeResultSizes> all = {
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", three_like<1, 4, 5>},
      {"aten::_fused_rms_norm", rms_norm},
      {"aten::_fused_rms_norm_backward", rms_norm_backward},
      {"aten::native_batch_norm", batch_norm},
      {"aten::native_batch_norm_backward", channel_norm_backward},
      {"aten::native_group_norm", group_norm},
      {"aten::native_group_norm_backward", channel_norm_backward},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::index_select", index_select},
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::_adaptive_avg_pool2d", adaptive_pool},
      {"aten::_adaptive_avg_pool2d_backward", one_like<1>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", three_like<1, 2, 3>},
      {"aten::native_dropout", dropout},
      {"aten::relu", one_like<0>},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace trireme::spmd
