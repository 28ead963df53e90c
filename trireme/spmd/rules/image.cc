// Pooling, resampling and padding of images [N, C, ...]: images and channels are split, pixels stay
// whole.
#include <algorithm>

#include <ATen/Functions.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

constexpr Factor kPicture = 0, kPlane = 1;

// The last `pixels` dimensions of a tensor stay whole; before them are C, and N where there are
// more.
Factors image_dims(int64_t dims, int64_t pixels, bool channels = true) {
  Factors result = whole_dims(dims);
  const int64_t channel = dims - pixels - 1;
  if (channel >= 0 && channels) result[channel] = kPlane;
  if (channel >= 1) result[channel - 1] = kPicture;
  return result;
}

template <int kPixels, bool kLinear>
void image(const OperatorCall& call, Form& form) {
  for (size_t i = 0; i < call.tensors().size(); ++i)
    form.inputs.push_back(image_dims(call.dims(i), kPixels));
  form.outputs.assign(call.op().schema().returns().size(), form.inputs[0]);
  if (kLinear) form.linear = {1};
  form.keeps_order = true;
}

// The sizes of the whole result are argument 2.
void adjust_sizes(OperatorCall& call, const Form&, const Strategy& strategy) {
  call[2] = local_sizes(*call.grid(), strategy.outputs[0], call[2].toIntVector());
}

std::vector<int64_t> at_least_one(std::vector<int64_t> sizes) {
  for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);
  return sizes;
}

// A block without images or channels, which the operators do not take, gives the results of one
// image or channel without it.
void run_image(OperatorCall& call, const Form& form, const Strategy&) {
  const at::Tensor first = call[0].toTensor();
  if (first.numel() > 0) return call.run_operator();
  for (size_t i = 0; i < call.num_arguments(); ++i) {
    if (!call[i].isTensor()) continue;
    const at::Tensor block = call[i].toTensor();
    call[i] = at::zeros(at_least_one(block.sizes().vec()), block.options());
  }
  const bool has_sizes = call.num_arguments() > 2 && call[2].isIntList() &&
                         call.op().schema().arguments()[2].name() == "input_size";
  if (has_sizes) call[2] = at_least_one(call[2].toIntVector());
  call.run_operator();
  const size_t count = form.outputs.size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = torch::jit::peek(call.stack(), i, count);
    at::Tensor result = value.toTensor();
    for (size_t dim = 0; dim < form.outputs[i].size(); ++dim) {
      const auto same = std::ranges::find(form.inputs[0], form.outputs[i][dim]);
      if (form.outputs[i][dim] == kWholeDim || same == form.inputs[0].end()) continue;
      if (first.size(same - form.inputs[0].begin()) == 0)
        result = result.narrow(static_cast<int64_t>(dim), 0, 0);
    }
    value = result;
  }
}

// x [N, C r r, H, W] -> [N, C, H r, W r], and back
void pixel_shuffle(const OperatorCall& call, Form& form) {
  form.inputs = {image_dims(call.dims(0), 2)};
  form.outputs = form.inputs;
  Form::Scales scales(call.dims(0), 1);
  scales[call.dims(0) - 3] = call[1].toInt() * call[1].toInt();
  form.output_scales = {scales};
  form.linear = {1};
}
void pixel_unshuffle(const OperatorCall& call, Form& form) {
  pixel_shuffle(call, form);
  form.input_scales = std::move(form.output_scales);
  form.output_scales.clear();
}

// x [N, C, H, W] <-> [N, C k k, L]: patches of all channels
void patches(const OperatorCall& call, Form& form) {
  form.inputs = {whole_dims(call.dims(0))};
  const bool is_batch =
      call.op().schema().name() == "aten::im2col" ? call.dims(0) == 4 : call.dims(0) == 3;
  const int64_t other = call.op().schema().name() == "aten::im2col" ? -1 : 1;
  form.outputs = {whole_dims(call.dims(0) + other)};
  if (is_batch) form.inputs[0][0] = form.outputs[0][0] = kPicture;
  form.linear = {1};
}

// input [N, C, ...], grid [N, ..., 2 or 3]
void grid_sampler(const OperatorCall& call, Form& form) {
  const int64_t pixels = call.dims(0) - 2;
  Factors grid = whole_dims(call.dims(1));
  grid[0] = kPicture;
  form.inputs = {image_dims(call.dims(0), pixels), grid};
  form.outputs = {form.inputs[0]};
}
// grad, input, grid -> of input, of grid: a sum over channels
void grid_sampler_backward(const OperatorCall& call, Form& form) {
  const Factors x = image_dims(call.dims(1), call.dims(1) - 2);
  Factors grid = whole_dims(call.dims(2));
  grid[0] = kPicture;
  form.inputs = {x, x, grid};
  form.outputs = {x, grid};
  form.contracted = 1U << kPlane;
}

}  // namespace

void add_image_rules(Rules& rules) {
  const auto add = [&](const std::string& name, Rule::MakeForm form, Rule::Adjust adjust = nullptr,
                       const char* splits = "images, channels") {
    rules.push_back({.name = "aten::" + name,
                     .splits = splits,
                     .make_form = form,
                     .adjust = adjust,
                     .run = run_image});
  };
  add("max_pool2d_with_indices", image<2, false>);
  add("max_pool3d_with_indices", image<3, false>);
  add("adaptive_max_pool2d", image<2, false>);
  add("adaptive_max_pool3d", image<3, false>);
  for (const char* name :
       {"max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward",
        "reflection_pad2d", "reflection_pad2d_backward", "replication_pad2d",
        "replication_pad2d_backward"}) {
    add(name, image<2, true>);
  }
  for (const char* name :
       {"max_pool3d_with_indices_backward", "avg_pool3d", "avg_pool3d_backward",
        "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward",
        "reflection_pad3d", "reflection_pad3d_backward", "replication_pad3d",
        "replication_pad3d_backward"}) {
    add(name, image<3, true>);
  }
  for (const char* name : {"reflection_pad1d", "reflection_pad1d_backward", "replication_pad1d",
                           "replication_pad1d_backward"}) {
    add(name, image<1, true>);
  }
  const auto add_resampling = [&](const std::string& name, Rule::MakeForm form) {
    add(name, form);
    add(name + "_backward", form, adjust_sizes);
  };
  for (const char* name : {"upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_linear1d"})
    add_resampling(name, image<1, true>);
  for (const char* name :
       {"upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d",
        "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"})
    add_resampling(name, image<2, true>);
  for (const char* name :
       {"upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"})
    add_resampling(name, image<3, true>);
  add("pixel_shuffle", pixel_shuffle);
  add("pixel_unshuffle", pixel_unshuffle);
  add("im2col", patches, nullptr, "images");
  add("col2im", patches, nullptr, "images");
  for (const char* name : {"grid_sampler_2d", "grid_sampler_3d"}) add(name, grid_sampler);
  for (const char* name : {"grid_sampler_2d_backward", "grid_sampler_3d_backward"})
    add(name, grid_sampler_backward);
}

}  // namespace trireme::spmd
