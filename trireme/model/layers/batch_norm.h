// Batch norm whose statistics are those of a whole forward: the samples of all ranks that read
// different data. A module of torch's kind, with the names and running statistics of
// torch::nn::BatchNorm, in one class for any number of dimensions.
// Source: Ioffe & Szegedy 2015, arXiv:1502.03167; merging statistics: Chan et al. 1979,
//         "Updating formulae and a pairwise algorithm for computing sample variances"
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "trireme/model/family/parts.h"

namespace trireme::model {

struct BatchNormOptions {
  double epsilon = 1e-5;  // added to the variance
  double momentum = 0.1;  // share of the new statistics in the running ones
};

// In training: (x - mean) / sqrt(var + epsilon) * weight + bias with the mean and the biased
// variance of each channel over the samples of all ranks of the axis, however they are distributed.
// In evaluation: with the running mean and variance. Each forward in training, except its
// repetition by recompute(), adds to the running statistics, which have the same bits on every
// rank. Statistics are in fp32, or in fp64 for fp64.
// Shapes:     x [B, C] or [B, C, ...], B may be 0 -> the same
// Comm:       training: (2C + 1) * 8 bytes from each rank to all in forward, 2C * 8 bytes
//             all-reduced in backward
// Collective: training: every rank of the axis, in forward and in backward
// Throws:     ConfigError for another number of channels, and in training when all ranks together
//             have a single value per channel
class BatchNormImpl : public torch::nn::Cloneable<BatchNormImpl> {
 public:
  explicit BatchNormImpl(int64_t channels, BatchNormOptions options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  // The running statistics stay in fp32 at least.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  at::Tensor weight;               // [C]
  at::Tensor bias;                 // [C]
  at::Tensor running_mean;         // [C]
  at::Tensor running_var;          // [C]
  at::Tensor num_batches_tracked;  // [] int64
  BatchAxis axis;

 private:
  void keep_precision();

  int64_t channels_;
  BatchNormOptions options_;
};
TORCH_MODULE(BatchNorm);

// The batch norms in `module`, in its order.
std::vector<BatchNormImpl*> batch_norms_of(torch::nn::Module& module);

// A sum of two tensors and a number, each with a factor per channel.

// Each [C], of any floating type.
struct ChannelFactors {
  at::Tensor first_C;
  at::Tensor second_C;
  at::Tensor offset_C;
};

// [C] -> [1, C, 1, ...], to go with x.
at::Tensor beside(const at::Tensor& per_channel_C, const at::Tensor& x);

// first_C * first + second_C * second + offset_C, in the format of `second`. On the CPU, in fp32
// and fp64, one pass over memory; libtorch's operators need two.
// Shapes: first, second [B, C, ...] of one dtype -> the same
at::Tensor channel_sum(const at::Tensor& first, const at::Tensor& second,
                       const ChannelFactors& factors);

}  // namespace trireme::model
