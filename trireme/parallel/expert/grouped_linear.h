// Linear layers of several experts at once: each row is multiplied by its own expert's weight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/expert/expert_order.h"
#include "trireme/parallel/expert/expert_replicas.h"

namespace trireme::parallel {

// Takes over the gradient of a weight and returns true, or returns false: compute it now. Empty:
// never.
using DeferGradient =
    std::function<bool(const at::Tensor& leaf, std::function<at::Tensor()> gradient)>;

// BLAS libraries choose other kernels for a product of few rows, on some CPUs for the last rows or
// columns, and for operands that are not aligned; these round otherwise. A product is therefore
// computed with these sizes, the rest zeros, and with aligned operands. A row then has the same
// bits however many rows its expert has; grouped_linear_test holds this machine to it.
struct ProductSizes {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
};
ProductSizes product_sizes(int64_t rows, int64_t inner, int64_t columns, at::ScalarType dtype);

struct GroupedOptions {
  DeferGradient defer{};
  // The first n experts are copies, whose gradients go to the stacks they were copied from. Null:
  // there are none.
  std::shared_ptr<const ExpertReplicas> replicas{};
  std::vector<at::Tensor> copies{};  // [n, F_i, D] for each stack
};

// y_i = x W_i^T for each stack of weights, expert by expert. x's gradient is summed over the stacks
// inside the products. A weight's gradient has a product for each rank that rows came from; these
// are added in the order of ranks, as data parallelism adds them. That of an expert without rows is
// zero. On a GPU libtorch's grouped product takes all experts at once: its sums are in an order of
// its own.
// Shapes:     x_RD [R, D], the rows of expert 0 first; W_i [e, F_i, D] -> y_i [R, F_i]
// Comm:       with replicas, in the weights' gradients: ExpertReplicas::sum_gradients()
// Collective: then every rank of their axis
std::vector<at::Tensor> grouped_linear(const at::Tensor& x_RD,
                                       const std::vector<at::Tensor>& weights,
                                       const ExpertRows& rows, const GroupedOptions& options = {});

}  // namespace trireme::parallel
