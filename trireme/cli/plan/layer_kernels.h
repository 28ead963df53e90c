// What `trireme bench device` times of layers, losses and optimizers on a CPU, and what the cost
// model makes of the seconds. Each kernel is the one that training calls, on sizes that do not fit
// a core's cache, as what a step reads was written long before.
#pragma once

#include <cstdint>
#include <functional>

#include <c10/core/ScalarType.h>

namespace trireme::cli {

// The median seconds of a call.
using TimeCall = std::function<double(const std::function<void()>& call)>;

// Square products, each of other matrices than the one before, in fp32 or bf16.
struct Products {
  int64_t n = 0;
  // Of a layer: its output and both gradients, of so many rows by [n, n]. 0: of square matrices.
  int64_t rows = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;

  double flops() const;  // of one
  // Of one product, timed over as many as needed. Those of a layer are their mean.
  double seconds(const TimeCall& time) const;
};

// Forward and backward of the attention that models call, causal, over sequences of `tokens`.
struct Attention {
  int64_t tokens = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;

  // Operations per second, counted by half, as the cost model divides both directions.
  double flops_per_second(double seconds) const;
  double seconds(const TimeCall& time) const;  // of both directions
};

// A sum of two tensors in fp32.
struct Memory {
  static double bytes_per_second(double seconds);
  static double seconds(const TimeCall& time);
};

// Forward and backward of a norm, its residual sum and a SwiGLU in bf16.
struct Elementwise {
  static double bytes_per_second(double seconds);  // as the cost model counts them
  static double seconds(const TimeCall& time);
};

// The head with its loss: forward and both gradients of logits that never exist at once.
struct Head {
  int64_t width = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;

  double flops() const;           // of its three products
  static double bytes_of_loss();  // as the cost model counts the loss's passes
  double seconds(const TimeCall& time) const;
};

// An optimizer's update of weights, AdamW's, and the norm of their gradients.
struct Update {
  c10::ScalarType dtype = c10::ScalarType::Float;

  double bytes_per_second(double seconds) const;  // as the cost model counts them
  double seconds(const TimeCall& time) const;
};

// Seconds of an operation on few numbers. Half of those that are timed are of backward.
double launch_seconds(const TimeCall& time);

}  // namespace trireme::cli
