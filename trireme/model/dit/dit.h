// The diffusion transformer: blocks without causality whose norms the timestep and the class scale
// and shift (adaLN-Zero), between the embedding of patches and a last norm and product of the same
// form, which gives the noise of each patch.
//
// Blocks pass on one tensor, rows [s + B, D]: this rank's s tokens, then the conditioning of each
// of the B images, the sum of the embeddings of its timestep and class. So it goes wherever the
// residual stream goes: to the next stage of a pipeline, into units of ZeRO, into recomputation.
// Every rank has all B rows of conditioning. Under sequence parallelism, the gradients of what
// reads them are summed over the ranks.
// Source: Peebles and Xie 2022, arXiv:2212.09748, section 3.2
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/dit/dit_config.h"
#include "trireme/model/family/network.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// What is embedded besides images.
struct Conditions {
  at::Tensor timesteps_B;  // [B] int64
  at::Tensor classes_B;    // [B] int64; DitConfig::null_class() for none
};

// The numbers that a timestep is embedded from.
inline constexpr int64_t kTimestepWaves = 256;

// Sines and cosines of the row and the column of each patch, half of the width each, on a grid of
// side x side. Rounded to fp32 in any dtype.
// Shapes:  -> [side * side, width] fp64
at::Tensor patch_positions(int64_t side, int64_t width);

// Cosines, then sines of the timestep, with periods from 2 pi to 2 pi * 10000. fp32 in any dtype.
// Shapes: timesteps_B [B] int64 -> [B, kTimestepWaves] fp32
// Source: Ho et al. 2020, arXiv:2006.11239, appendix B; the periods: Vaswani et al. 2017,
//         arXiv:1706.03762, section 3.5
at::Tensor timestep_waves(const at::Tensor& timesteps_B);

// The rows of tokens, as attention and feed-forward take them, and of conditioning.
struct DitRows {
  at::Tensor tokens;  // [B, T, D], or its rows as the tensor axis holds them
  at::Tensor c_BD;
};

// Splits and joins the tensor that blocks pass on, and modulates tokens by their image's rows.
class Conditioning {
 public:
  explicit Conditioning(const parallel::TensorAxis& axis) : axis_(axis) {}
  DitRows split(const at::Tensor& rows, const TokenBatch& batch) const;
  static at::Tensor join(const at::Tensor& tokens, const at::Tensor& c_BD);

  // `count` modulations: silu(c) W^T + b, in parts.
  // Shapes: c_BD -> count of [B, 1, D] or, as the tensor axis holds rows, [s, D]
  std::vector<at::Tensor> modulations(const at::Tensor& c_BD, const Linear& linear, int64_t count,
                                      const TokenBatch& batch) const;
  // x W^T + b, for a layer that every rank holds whole and applies to its own rows.
  at::Tensor apply(const Linear& linear, const at::Tensor& x) const;

 private:
  parallel::TensorAxis axis_;
};

// norm(x) (1 + scale) + shift.
at::Tensor modulated_norm(const at::Tensor& x, double epsilon, const at::Tensor& shift,
                          const at::Tensor& scale);

// Every rank holds all parameters and embeds the tokens that it holds between the layers.
class DitEmbeddings {
 public:
  // Registers the modules in `network`.
  DitEmbeddings(torch::nn::Module& network, const DitConfig& config, const ModelAxes& axes,
                at::ScalarType dtype);
  // Shapes: images [B, C, image_size, image_size] -> rows
  at::Tensor forward(const at::Tensor& images, const Conditions& conditions,
                     const TokenBatch& batch) const;
  std::vector<at::Tensor> parameters() const;

 private:
  at::Tensor tokens(const at::Tensor& images, const TokenBatch& batch) const;
  at::Tensor conditioning(const Conditions& conditions) const;

  parallel::TensorAxis axis_;
  Conditioning conditioning_;
  at::Tensor weight_DCPP_;  // of the convolution that embeds patches
  at::Tensor bias_D_;
  std::shared_ptr<Linear> timestep_in_;   // [D, kTimestepWaves]
  std::shared_ptr<Linear> timestep_out_;  // [D, D]
  at::Tensor class_table_;                // [classes + 1, D]
  at::Tensor positions_TD_;               // fixed, fp64
};

// x + gate * attention(modulated norm(x)), then the same with the feed-forward.
class DitBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  DitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& rows, const TokenBatch& batch) override;

  double epsilon_;  // of the norm before the feed-forward
  Conditioning conditioning_;
  std::shared_ptr<Linear> modulation_;  // [6 D, D]
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<GeluFeedForward> feed_forward_;
};

// Embeddings, blocks, and the last norm with its product, as far as the part has them. Its input is
// noisy images. With the head it returns the noise of this rank's tokens: [B, T, P * P * C], or its
// rows as the tensor axis holds them.
class Dit : public Network {
 public:
  Dit(const DitConfig& config, const ModelAxes& axes, const ModelPart& part, at::ScalarType dtype);

  Conditions conditions;  // of the next forward of a part that embeds

 private:
  at::Tensor embed(const at::Tensor& images, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& rows, const TokenBatch& batch) override;

  Conditioning conditioning_;
  std::unique_ptr<DitEmbeddings> embeddings_;  // null: the part does not embed
  std::shared_ptr<Linear> proj_out_1_;         // [2 D, D]; null: the part has no head
  std::shared_ptr<Linear> proj_out_2_;         // [P * P * C, D]
};

}  // namespace trireme::model
