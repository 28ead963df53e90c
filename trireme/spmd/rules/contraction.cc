// Products of matrices, sums over products, convolutions and attention.
#include <algorithm>

#include <ATen/Functions.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

constexpr Factor kBatch = 0, kRow = 1, kColumn = 2, kInner = 3;

// A bias under the product: dimensions of length 1 repeat.
Factors repeated(const OperatorCall& call, size_t tensor, Factors dims, c10::IntArrayRef lengths) {
  const int64_t own = call.dims(tensor), first = std::ssize(dims) - own;
  Factors result(own);
  for (int64_t dim = 0; dim < own; ++dim) {
    const bool repeats = call.sizes(tensor)[dim] != lengths[first + dim];
    result[dim] = repeats ? kWholeDim : dims[first + dim];
  }
  return result;
}

// bias: added to the product; with it the product's tensors are 1 and 2
void product(const OperatorCall& call, Form& form, const Factors& left, const Factors& right,
             const Factors& result, bool bias) {
  if (bias) {
    const auto x = call.sizes(1), w = call.sizes(2);
    c10::SmallVector<int64_t, 3> lengths(x.begin(), x.end());
    lengths.back() = w.back();
    form.inputs.push_back(repeated(call, 0, result, lengths));
    form.added = 1;
    form.linear = {0b011, 0b101};
  } else {
    form.linear = {0b01, 0b10};
  }
  form.inputs.push_back(left);
  form.inputs.push_back(right);
  form.outputs.push_back(result);
  form.contracted = 1U << kInner;
}

void mm(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner, kColumn}, {kRow, kColumn}, false);
}
void addmm(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner, kColumn}, {kRow, kColumn}, true);
}
void bmm(const OperatorCall& call, Form& form) {
  product(call, form, {kBatch, kRow, kInner}, {kBatch, kInner, kColumn}, {kBatch, kRow, kColumn},
          false);
}
void baddbmm(const OperatorCall& call, Form& form) {
  product(call, form, {kBatch, kRow, kInner}, {kBatch, kInner, kColumn}, {kBatch, kRow, kColumn},
          true);
}
void mv(const OperatorCall& call, Form& form) {
  product(call, form, {kRow, kInner}, {kInner}, {kRow}, false);
}
void dot(const OperatorCall& call, Form& form) {
  product(call, form, {kInner}, {kInner}, {}, false);
}

// x [N, C, ...], w [O, C / groups, ...], transposed [C, O / groups, ...], bias [O]. Pixels stay
// whole. With groups, whole groups are split.
constexpr Factor kImage = 0, kOut = 1, kIn = 2, kGroup = 3;
Factors channels(int64_t dims, Factor first, Factor second) {
  Factors result = whole_dims(dims);
  if (dims >= 2) {
    result[0] = first;
    result[1] = second;
  }
  return result;
}
struct Channels {
  // x and w: tensors of the call
  Channels(const OperatorCall& call, size_t x, size_t w, bool transposed, int64_t groups) {
    const int64_t in = call.sizes(x)[1];
    const int64_t out = transposed ? call.sizes(w)[1] * groups : call.sizes(w)[0];
    const Factor out_dim = groups > 1 ? kGroup : kOut, in_dim = groups > 1 ? kGroup : kIn;
    input = channels(call.dims(x), kImage, in_dim);
    output = channels(call.dims(x), kImage, out_dim);
    bias = out_dim;
    weight = transposed ? channels(call.dims(w), in_dim, groups > 1 ? kWholeDim : kOut)
                        : channels(call.dims(w), out_dim, groups > 1 ? kWholeDim : kIn);
    if (groups == 1) return;
    // A position of the factor: a channel in, times a channel out.
    input_scale = std::max<int64_t>(out / groups, 1);
    output_scale = std::max<int64_t>(in / groups, 1);
    weight_scale = transposed ? input_scale : output_scale;
    granule = input_scale * output_scale;
  }
  bool has_groups() const { return bias == kGroup; }

  Factors input{}, weight{}, output{};
  Factor bias = kOut;
  int64_t input_scale = 1, weight_scale = 1, output_scale = 1, granule = 1;
};
// x, w, bias, stride, padding, dilation, transposed, output padding, groups
void convolution(const OperatorCall& call, Form& form) {
  const Channels dims(call, 0, 1, call[6].toBool(), call[8].toInt());
  form.inputs = {dims.input, dims.weight, Factors(call.dims(2), dims.bias)};
  form.outputs = {dims.output};
  form.keeps_order = true;
  form.contracted = 1U << kIn;
  form.added = 0b100;
  if (!dims.has_groups()) return;
  form.granular = kGroup;
  form.granule = dims.granule;
  form.input_scales = {{1, dims.input_scale}, {dims.weight_scale}, {dims.output_scale}};
  form.output_scales = {{1, dims.output_scale}};
}
// grad, x, w, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask
void convolution_backward(const OperatorCall& call, Form& form) {
  const Channels dims(call, 1, 2, call[7].toBool(), call[9].toInt());
  form.inputs = {dims.output, dims.input, dims.weight};
  form.outputs = {dims.input, dims.weight, {dims.bias}};
  form.contracted = 1U << kImage | 1U << kOut;
  // A split of the input's channels leaves the bias' gradient whole, not a sum.
  if (!dims.has_groups()) return;
  form.granular = kGroup;
  form.granule = dims.granule;
  form.input_scales = {{1, dims.output_scale}, {1, dims.input_scale}, {dims.weight_scale}};
  form.output_scales = {{1, dims.input_scale}, {dims.weight_scale}, {dims.output_scale}};
}
// The groups of the block.
void adjust_number_of_groups(OperatorCall& call, const at::Tensor& x, size_t groups) {
  if (call[groups].toInt() == 1) return;
  const int64_t own = call[groups].toInt() * x.size(1) / call.sizes(groups == 8 ? 0 : 1)[1];
  call[groups] = own;
}
void run_convolution(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor x = call[0].toTensor();
  adjust_number_of_groups(call, x, 8);
  const at::Tensor w = call[1].toTensor();
  if (x.numel() > 0 && w.numel() > 0) return call.run_operator();
  // Not every backend takes empty blocks.
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] = call[6].toBool() ? w.size(1) * call[8].toInt() : w.size(0);
  for (size_t dim = 2; dim < sizes.size(); ++dim) {
    const auto list = [&](size_t argument) {
      const auto values = call[argument].toIntVector();
      return values.size() == 1 ? values[0] : values[dim - 2];
    };
    const int64_t kernel = list(5) * (call.sizes(1)[dim] - 1) + 1, pads = 2 * list(4);
    sizes[dim] = call[6].toBool() ? (sizes[dim] - 1) * list(3) - pads + kernel + list(7)
                                  : (sizes[dim] + pads - kernel) / list(3) + 1;
  }
  at::Tensor y = at::zeros(sizes, x.options());
  const bool adds = call[2].isTensor() && call[2].toTensor().defined();
  std::vector<int64_t> along(sizes.size(), 1);
  along[1] = sizes[1];
  if (adds) y.add_(call[2].toTensor().view(along));
  call.finish(y);
}
// The bias' sizes are an argument, and the bias is no tensor of it.
void run_convolution_backward(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor grad = call[0].toTensor(), x = call[1].toTensor(), w = call[2].toTensor();
  if (call[3].isIntList()) call[3] = std::vector<int64_t>{grad.size(1)};
  adjust_number_of_groups(call, x, 9);
  if (x.numel() > 0 && w.numel() > 0) return call.run_operator();
  const auto mask = call[10].toBoolList();
  call.finish({mask[0] ? at::zeros_like(x) : at::Tensor(),
               mask[1] ? at::zeros_like(w) : at::Tensor(),
               mask[2] ? grad.flatten(2).sum({0, 2}) : at::Tensor()});
}

// Of q, k, v [B, H, T, D], where several heads of q may share one of k and v.
struct Heads {
  Heads(const OperatorCall& call, size_t q) {
    const int64_t own = call.sizes(q)[1], keys = call.sizes(q + 1)[1];
    const bool is_split = keys > 0 && own % keys == 0 && call.sizes(q + 2)[1] == keys;
    if (is_split) dims[1] = 1;
    if (is_split && own != keys) shared = {1, own / keys, 1, 1};
  }
  Factors dims = {0, kWholeDim, kWholeDim, kWholeDim};
  Form::Scales shared{};  // of k and v
};
// An attention mask, whose dimensions of length 1 repeat.
Factors mask_of(const OperatorCall& call, size_t mask, size_t query, const Factors& heads) {
  Factors result = whole_dims(call.dims(mask));
  for (int64_t dim = 0; dim + 2 < call.dims(mask); ++dim) {
    const int64_t aligned = dim + 4 - call.dims(mask);
    if (call.sizes(mask)[dim] == call.sizes(query)[aligned]) result[dim] = heads[aligned];
  }
  return result;
}
// q, k, v, mask
void attention(const OperatorCall& call, Form& form) {
  const Heads heads(call, 0);
  form.inputs = {heads.dims, heads.dims, heads.dims};
  for (size_t i = 3; i < call.tensors().size(); ++i)
    form.inputs.push_back(mask_of(call, i, 0, heads.dims));
  form.outputs = {heads.dims, {heads.dims[0], heads.dims[1], kWholeDim}};
  if (!heads.shared.empty()) form.input_scales = {{}, heads.shared, heads.shared};
}
// grad, q, k, v, out, logsumexp [B, H, T], mask
void attention_backward(const OperatorCall& call, Form& form) {
  const Heads heads(call, 1);
  form.inputs.assign(5, heads.dims);
  form.inputs.push_back({heads.dims[0], heads.dims[1], kWholeDim});
  for (size_t i = 6; i < call.tensors().size(); ++i)
    form.inputs.push_back(mask_of(call, i, 1, heads.dims));
  form.outputs = {heads.dims, heads.dims, heads.dims};
  if (heads.shared.empty()) return;
  form.input_scales = {{}, {}, heads.shared, heads.shared};
  form.output_scales = {{}, heads.shared, heads.shared};
}

// Blocks without heads or samples: the operators divide by their number.
void run_attention(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor q = call[0].toTensor(), k = call[1].toTensor();
  if (q.numel() > 0 && k.numel() > 0) return call.run_operator();
  const bool is_narrow = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const auto sums = q.options().dtype(is_narrow ? at::kFloat : q.scalar_type());
  call.finish({at::zeros_like(q), at::zeros({q.size(0), q.size(1), q.size(2)}, sums)});
}
void run_attention_backward(OperatorCall& call, const Form&, const Strategy&) {
  const at::Tensor q = call[1].toTensor(), k = call[2].toTensor();
  if (q.numel() > 0 && k.numel() > 0) return call.run_operator();
  call.finish({at::zeros_like(q), at::zeros_like(k), at::zeros_like(call[3].toTensor())});
}

}  // namespace

void add_contraction_rules(Rules& rules) {
  const auto add = [&](const char* name, const char* splits, Rule::MakeForm form,
                       Rule::Adjust run = nullptr) {
    rules.push_back(
        {.name = std::string("aten::") + name, .splits = splits, .make_form = form, .run = run});
  };
  constexpr const char* kAll = "all dims; over the inner one the result is a partial sum";
  add("mm", kAll, mm);
  add("addmm", kAll, addmm);
  add("bmm", kAll, bmm);
  add("baddbmm", kAll, baddbmm);
  add("mv", kAll, mv);
  add("dot", kAll, dot);
  constexpr const char* kImages = "images, channels in and out, groups";
  add("convolution", kImages, convolution, run_convolution);
  add("convolution_backward", kImages, convolution_backward, run_convolution_backward);
  constexpr const char* kHeads = "batch, heads; heads that share keys together";
  add("_scaled_dot_product_flash_attention_for_cpu", kHeads, attention, run_attention);
  add("_scaled_dot_product_flash_attention_for_cpu_backward", kHeads, attention_backward,
      run_attention_backward);
}

}  // namespace trireme::spmd
