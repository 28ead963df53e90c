// The global gradient norm, and clipping by it. Each parameter is summed in double grain by grain,
// and its grains in order. The norm's bits therefore do not depend on threads, buckets, ZeRO stage
// or ranks. A device sums in at least fp32, and whole gradients in an order of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::train {

// The sums of squares of the grains (see parallel::Grains) in this rank's part of a parameter.
// tensor: has the shape of the layout's box, and any floating dtype.
std::vector<double> grain_squares(const at::Tensor& tensor, const mesh::Layout& layout);

// Parameters that are split over the same groups.
struct NormPart {
  std::span<const parallel::Shard> shards;
  comm::Communicator& shard;            // the ranks of the shards' layouts
  comm::Communicator* outer = nullptr;  // those of the layouts around them; null: none
};

// The sum of squares of each gradient of a part over the ranks that share it; 0 for frozen ones. In
// the order of the shards. The same on every rank.
// Comm:       if the shards are not whole, 8 bytes per grain (at least 1024 elements) of the other
//             ranks' gradients; 8 bytes per parameter from every rank of `outer`
// Collective: every rank of the groups
std::vector<double> gradient_squares(const NormPart& part);

// The same for several parts, in the order of `parameters`, which names all of the model.
// pipeline: ranks with different parameters; null: every rank has all.
// Comm:       that of the parts, and the sum of 8 bytes per parameter over `pipeline`
// Collective: every rank of the groups
std::vector<double> gradient_squares(std::span<const NormPart> parts, comm::Communicator* pipeline,
                                     std::span<const std::string> parameters);

// The Euclidean norm over all parameters.
double gradient_norm(std::span<const double> squares);

// The factor for gradients that reduces a norm above max_norm to max_norm. max_norm 0 never clips.
// Source: Pascanu et al. 2013, arXiv:1211.5063
double clip_factor(double norm, double max_norm);

// The first of `parameters` whose gradient has a NaN or an infinity; "" when there is none.
std::string first_nonfinite_gradient(std::span<const std::string> parameters,
                                     std::span<const double> squares);

// Norms of whole tensors, and ratios of norms. The results are tensors, so nothing waits for a GPU.

// The Euclidean norm, []. On a CPU it is summed in double in a fixed order (grain_squares).
at::Tensor l2_norm(const at::Tensor& tensor);

// The root of the mean square, []. The tensor must not be empty.
at::Tensor root_mean_square(const at::Tensor& tensor);

// numerator / denominator if both are above 0, else 1. [], [] -> []
at::Tensor trust_ratio(const at::Tensor& numerator, const at::Tensor& denominator);

// The part of embedding tables in the gradient norm. A row's squares are summed in double and in a
// fixed order, and the rows' sums without rounding, so that the norm has the same bits whichever
// rank has which rows or columns.

// The sum of squares of each table's gradient since the last step. The same on every rank. NaN when
// a gradient is not finite.
// group: the ranks of the tables, or ranks among which they are all
// Comm:       EmbeddingTables::gradient_squares(); then 568 bytes per table, all-reduced
// Collective: every rank of `group`
std::vector<double> table_squares(const parallel::EmbeddingTables& tables,
                                  comm::Communicator& group);

// A sum of doubles without rounding, so that it does not depend on the order of its terms. Parts of
// a sum that were added on different ranks are merged limb by limb, as whole numbers.
// Source: Kulisch & Miranker 1986, "The arithmetic of the digital computer: a new approach"

class ExactSum {
 public:
  // 32 bits each, from 2^-1152 on; the last one counts the terms that were not finite.
  static constexpr size_t kNumLimbs = 71;

  void add(double term);
  // The limbs may be added to those of another sum. At most 2^30 sums may be merged.
  std::span<const int64_t> limbs();
  void add(std::span<const int64_t> limbs);

  // The nearest double, or one next to it. NaN if a term was not finite.
  double value();

 private:
  void carry();

  std::array<int64_t, kNumLimbs> limbs_{};
  int64_t num_added_ = 0;  // since the last carry
};

}  // namespace trireme::train
