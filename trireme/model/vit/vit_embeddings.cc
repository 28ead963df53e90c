#include "trireme/model/vit/vit_embeddings.h"

#include <memory>

#include <ATen/ATen.h>

#include "trireme/model/layers/linear.h"
#include "trireme/parallel/tensor/replicated_weight.h"

namespace trireme::model::inline internal {

at::Tensor patch_rows(const at::Tensor& images, int64_t patch_size, at::ScalarType dtype) {
  const int64_t B = images.size(0), C = images.size(1), P = patch_size;
  const int64_t side = images.size(2) / P;  // patches in a row of the image
  const at::Tensor pixels =
      at::zeros({B, side * side + 1, C * P * P}, images.options().dtype(dtype));
  pixels.narrow(1, 1, side * side)
      .view({B, side, side, C, P, P})
      .copy_(images.unflatten(3, {side, P}).unflatten(2, {side, P}).permute({0, 2, 4, 1, 3, 5}));
  return pixels;
}

VitEmbeddings::VitEmbeddings(const VitConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : axis_(axes.tensor) {
  const int64_t D = config.width, P = config.patch_size;
  cls_token = register_parameter("cls_token", at::zeros({1, 1, D}, dtype));
  position_embeddings =
      register_parameter("position_embeddings", at::zeros({1, config.num_tokens(), D}, dtype));
  const auto projection =
      register_at(*this, "patch_embeddings.projection", std::make_shared<torch::nn::Module>());
  weight_DCPP =
      projection->register_parameter("weight", at::zeros({D, config.channels, P, P}, dtype));
  bias_D = projection->register_parameter("bias", at::zeros({D}, dtype));
}

// The rows that this rank holds. A copy if they are not all rows, because backward keeps them.
at::Tensor VitEmbeddings::own_rows(const at::Tensor& pixels, const TokenBatch& batch) const {
  const at::Tensor pixels_S =
      parallel::view_rows(batch.context ? batch.context->local(pixels, 1).clone() : pixels);
  if (!axis_.sequence) return pixels_S;
  const mesh::Range own = axis_.own_rows(pixels_S.size(0));
  return own.size == pixels_S.size(0) ? pixels_S : pixels_S.narrow(0, own.offset, own.size).clone();
}

// One product for all tokens. The zeros of the class token give it nothing but its own embedding,
// and the other tokens get the convolution's bias in its place.
at::Tensor VitEmbeddings::forward(const at::Tensor& images, const TokenBatch& batch) {
  const auto weight = [this](const at::Tensor& whole) {
    return parallel::weight_of_rows(whole, axis_);
  };
  const at::Tensor pixels_S =
      own_rows(patch_rows(images, weight_DCPP.size(2), weight_DCPP.scalar_type()), batch);
  const at::Tensor x_SD = at::linear(pixels_S, weight(weight_DCPP).flatten(1));
  const int64_t D = bias_D.size(0);
  const int64_t num_patches = position_embeddings.size(1) - 1;
  const at::Tensor added_TD =
      weight(position_embeddings).squeeze(0) +
      at::cat({weight(cls_token).squeeze(0), weight(bias_D).expand({num_patches, D})});
  if (!axis_.sequence) {
    return x_SD.view({batch.B, batch.T, D}) + added_TD.index_select(0, batch.positions_T);
  }
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  return x_SD + added_TD.index_select(
                    0, batch.positions_T.repeat({batch.B}).narrow(0, own.offset, own.size));
}

}  // namespace trireme::model::inline internal
