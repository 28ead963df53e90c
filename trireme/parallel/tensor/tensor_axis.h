// The mesh's tensor axis as layers see it: which ranks share their weights, how activations lie
// between the layers, and weights that every rank holds whole. Rows are tokens, over all dimensions
// but the last: S = B * T of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// Lets a layer's backward postpone the gradients of its weights. Zero-bubble pipelines fill their
// bubbles with them.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2
class WeightGradients {
 public:
  virtual ~WeightGradients() = default;
  // Takes over `gradient` and returns true, or returns false: compute it now. A `gradient` that was
  // taken over is called once, later, by the thread that runs backward. Its result is added to the
  // gradient of `leaf` as autograd would have done.
  virtual bool defer(const at::Tensor& leaf, std::function<at::Tensor()> gradient) = 0;
};

// Small and freely copied. The layers must not outlive what it points to.
struct TensorAxis {
  comm::Communicator* group = nullptr;  // null: only this rank
  // Sequence parallel: between the layers each rank holds s = S/p of the rows, so norms, dropout
  // and residuals are not repeated. false: every rank holds all rows.
  // Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2
  bool sequence = false;
  // Asynchronous: matrix products are cut into the rows of each rank. Rows travel on the group's
  // progress thread while others are multiplied, and the input's gradient travels while the
  // weights' gradients are computed. The bits are the same. Null means false. May change between
  // steps.
  // Source: Wang et al. 2023 (ASPLOS), "Overlap communication with dependent computation"
  std::shared_ptr<const bool> overlap{};
  WeightGradients* weight_gradients = nullptr;  // null: computed at once
  // Activations in transit lie in the group's symmetric memory. Set to false on a host with too
  // little shared memory.
  bool symmetric = true;
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};

  bool overlaps() const { return overlap != nullptr && *overlap; }
  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  mesh::Range rows_of(int64_t num_rows, int rank) const {
    return mesh::split_range(num_rows, size(), rank);
  }
  // The rows this rank holds between layers; if not `sequence`, the rows whose residual it adds.
  mesh::Range own_rows(int64_t num_rows) const { return rows_of(num_rows, rank()); }
};

// x as rows: [..., D] -> [S, D].
at::Tensor view_rows(const at::Tensor& x);

// An uninitialised tensor in the memory on which the axis's collectives are fastest.
at::Tensor empty_on(const TensorAxis& axis, at::IntArrayRef sizes,
                    const at::TensorOptions& options);

// A tensor in transit between the ranks. wait() returns it.
class MovingRows {
 public:
  using Clock = std::chrono::steady_clock;
  // start: a time before the work was issued. The work may have run already.
  MovingRows(const TensorAxis& axis, at::Tensor rows, comm::WorkPtr work, Clock::time_point start,
             std::vector<at::Tensor> keeps = {});
  // Rows that have arrived.
  explicit MovingRows(at::Tensor rows) : rows_(std::move(rows)) {}
  at::Tensor wait();
  int64_t num_rows() const { return rows_.size(0); }

 private:
  at::Tensor rows_;
  std::shared_ptr<std::chrono::nanoseconds> waiting_;
  comm::WorkPtr work_;             // null: arrived
  std::vector<at::Tensor> keeps_;  // what the work reads
};

// Gathers all rows from the ranks that hold them between the layers.
// Shapes:     sequence: x [s, D] -> [S, D]; otherwise x [..., D] -> [S, D], x itself
// Comm:       sequence: (p-1)/p * S*D*itemsize bytes; otherwise none
// Collective: every rank of the axis
MovingRows gather_rows(const at::Tensor& x, int64_t num_rows, const TensorAxis& axis,
                       bool background = false);

// A product whose input may be in transit: calls multiply(rows, those rows of x) until it covers
// all rows of gather_rows(x). This rank's own rows come first. The cuts do not depend on overlap,
// because a product of fewer rows may round differently.
void multiply_gathered(const TensorAxis& axis, const at::Tensor& x, MovingRows& gathered,
                       const std::function<void(mesh::Range rows, const at::Tensor& x)>& multiply);

// The sum of y over the ranks, as the layers hold it between them. Overwrites y.
// Shapes:     y_SD [S, D] -> sequence: [s, D]; otherwise [S, D]
// Comm:       sequence: (p-1)/p * S*D*itemsize bytes; otherwise 2(p-1)/p * S*D*itemsize
// Collective: every rank of the axis
MovingRows sum_rows(at::Tensor y_SD, const TensorAxis& axis, bool background = false);

// The same for a y that `multiply` computes, one rank's rows at a time. With overlap, rows are sent
// as soon as they are computed.
// Shapes: y_SD [S, D], memory of empty_on()
at::Tensor multiply_and_sum_rows(at::Tensor y_SD, const TensorAxis& axis,
                                 const std::function<void(mesh::Range rows)>& multiply);

// The gradient that a layer's backward returns for `weight`: compute(), or undefined if
// axis.weight_gradients has taken it over.
at::Tensor weight_gradient(const TensorAxis& axis, const at::Tensor& weight,
                           const std::function<at::Tensor()>& compute);

// A parameter that every rank of the tensor axis holds whole but uses for its own part of the work:
// a norm on the rank's tokens under sequence parallelism, or key and value projections when there
// are more ranks than kv heads. The gradient is summed, so the copies keep the same bits.

// Returns the weight. Backward sums its gradient over the axis.
// Comm:       forward none; backward 2(p-1)/p * weight.numel() * 4 bytes (fp64: 8)
// Collective: every rank of the axis, in backward too: the gradient must reach it on every rank
at::Tensor replicated_weight(const at::Tensor& weight, const TensorAxis& axis);

// The weight of a layer that works on the rows a rank holds between layers. Under sequence
// parallelism these are the rank's own rows. Otherwise they are all rows, and every rank already
// has the whole gradient.
at::Tensor weight_of_rows(const at::Tensor& weight, const TensorAxis& axis);

}  // namespace trireme::parallel
