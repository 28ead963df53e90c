// The mesh's tensor axis as layers see it: who shares their weights, and how activations between
// the layers lie. Rows are tokens, all dimensions but the last taken together: S = B * T of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/tensor/weight_gradients.h"

namespace trireme::parallel {

// Small and copied freely; what it points to outlives the layers.
struct TensorAxis {
  comm::Communicator* group = nullptr;  // null: this rank alone
  // Sequence parallel: between the layers each rank holds its part of the rows, s = S/p of them, so
  // that norms, dropout and residuals are not repeated. false: every rank holds all rows.
  // Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2
  bool sequence = false;
  // Asynchronous: matrix products are cut into the rows of each rank, which travel on the group's
  // progress thread while others are multiplied, and the input's gradient travels while the
  // weights' are computed. The bits are the same. Null: false; may change between steps.
  // Source: Wang et al. 2023 (ASPLOS), "Overlap communication with dependent computation"
  std::shared_ptr<const bool> overlap{};
  WeightGradients* weight_gradients = nullptr;  // null: computed at once
  // Activations on their way lie in the group's symmetric memory. On a host with too little shared
  // memory for them: false.
  bool symmetric = true;
  // Counts how long this rank waits for the others; null: nobody asks.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};

  bool overlaps() const { return overlap != nullptr && *overlap; }
  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  mesh::Range rows_of(int64_t num_rows, int rank) const {
    return mesh::split_range(num_rows, size(), rank);
  }
  // Those this rank holds between layers; with `sequence` false those whose residual it adds.
  mesh::Range own_rows(int64_t num_rows) const { return rows_of(num_rows, rank()); }
};

// x seen as rows: [..., D] -> [S, D].
at::Tensor view_rows(const at::Tensor& x);

// Uninitialised, where the axis's collectives are fastest.
at::Tensor empty_on(const TensorAxis& axis, at::IntArrayRef sizes,
                    const at::TensorOptions& options);

// A tensor on its way between the ranks. wait() returns it.
class MovingRows {
 public:
  using Clock = std::chrono::steady_clock;
  // start: before the work was called, which may have run already.
  MovingRows(const TensorAxis& axis, at::Tensor rows, comm::WorkPtr work, Clock::time_point start,
             std::vector<at::Tensor> keeps = {});
  // Rows that are here.
  explicit MovingRows(at::Tensor rows) : rows_(std::move(rows)) {}
  at::Tensor wait();
  int64_t num_rows() const { return rows_.size(0); }

 private:
  at::Tensor rows_;
  std::shared_ptr<std::chrono::nanoseconds> waiting_;
  comm::WorkPtr work_;             // null: arrived
  std::vector<at::Tensor> keeps_;  // what the work reads
};

// All rows, of which each rank has what the layers hold between them.
// Shapes:     sequence: x [s, D] -> [S, D]; otherwise x [..., D] -> [S, D], x itself
// Comm:       sequence: (p-1)/p * S*D*itemsize bytes; otherwise none
// Collective: every rank of the axis
MovingRows gather_rows(const at::Tensor& x, int64_t num_rows, const TensorAxis& axis,
                       bool background = false);

// A product whose input may be on its way: multiply(rows, those rows of x) for all rows of
// gather_rows(x), first those that this rank holds itself. The cuts do not depend on overlap: a
// product of fewer rows at a time may round otherwise.
void multiply_gathered(const TensorAxis& axis, const at::Tensor& x, MovingRows& gathered,
                       const std::function<void(mesh::Range rows, const at::Tensor& x)>& multiply);

// The sum over the ranks of y, as the layers hold it between them; y's memory is used.
// Shapes:     y_SD [S, D] -> sequence: [s, D]; otherwise [S, D]
// Comm:       sequence: (p-1)/p * S*D*itemsize bytes; otherwise 2(p-1)/p * S*D*itemsize
// Collective: every rank of the axis
MovingRows sum_rows(at::Tensor y_SD, const TensorAxis& axis, bool background = false);

// The same of a y that `multiply` computes, the rows of each rank in turn; with overlap they travel
// as soon as they are there.
// Shapes:     y_SD [S, D], memory of empty_on()
at::Tensor multiply_and_sum_rows(at::Tensor y_SD, const TensorAxis& axis,
                                 const std::function<void(mesh::Range rows)>& multiply);

// What a layer's backward owes `weight`: compute() now, or undefined once it has been
// handed to axis.weight_gradients.
at::Tensor weight_gradient(const TensorAxis& axis, const at::Tensor& weight,
                           const std::function<at::Tensor()>& compute);

}  // namespace trireme::parallel
