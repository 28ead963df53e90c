// An optimizer's update of one parameter, independent of who owns the parameter and where its
// states are. A rule holds no tensors, and an item's update depends only on that item. A step's
// items may therefore come in any order, a few at a time, in chunks that fit the memory, as their
// states arrive from host or disk.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/shard.h"

namespace trireme::train {

// A tensor that a rule keeps for a parameter. Initially zero; has the dtype of the weights.
struct StateSpec {
  std::string name;                  // "exp_avg"
  std::vector<int64_t> local_shape;  // this rank's part
  mesh::Layout layout;               // of the whole tensor, over the axes of the parameter's layout
  bool is_positive = false;          // none of its numbers is below 0
};

// One parameter's part of a step. All tensors are contiguous and on one device.
struct UpdateItem {
  at::Tensor weights;               // fp32 or fp64; updated in place
  at::Tensor gradient;              // same shape; may have lower precision
  std::vector<at::Tensor> state{};  // as state_of() lists them; updated in place
  double weight_decay = 0;
  double rate_scale = 1;  // factor for the learning rate
  double gradient_factor = 1;
  // If defined, the updated weights are also written here, rounded to the nearest.
  at::Tensor rounded{};
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state_of(const parallel::Shard& shard) const = 0;

  // step: number of this update, from 1. Computes in the dtype of the weights. Ignores items
  // without elements. Records no autograd graph.
  virtual void update(std::span<const UpdateItem> items, double learning_rate,
                      int64_t step) const = 0;

  // true: a parameter lies whole on one rank and is empty on the others. false: the update is
  // elementwise. It then has the same bits on the pieces of a parameter that is cut at multiples of
  // 64 elements, for any number of threads.
  virtual bool needs_whole_parameters() const = 0;
};

// Whether the parameter is a stack of experts' matrices [e, F, D]. Rules that need whole parameters
// get each of them, with its part of the states, as an item of its own: an expert's update is the
// same on whatever rank it is.
bool is_expert_stack(const mesh::Layout& layout);
// The same for a stack of experts' biases [e, F], which is no matrix.
bool is_expert_bias(const mesh::Layout& layout);

// A state with the parameter's shape and layout.
StateSpec state_like(const parallel::Shard& shard, const std::string& name,
                     bool is_positive = false);

// The layout of a tensor whose dimension `dim` is another: map(position, length) is its length for
// position == length, and where it is cut for the layout's cuts.
mesh::Layout with_dim(const mesh::Layout& layout, int64_t dim,
                      const std::function<int64_t(int64_t position, int64_t length)>& map);
// The layout with the length 1 in one dimension. If the tensor lies whole at one coordinate and is
// empty at the others, so does the result.
// Throws: InternalError when the dimension is cut elsewhere
mesh::Layout with_length_one(const mesh::Layout& layout, int64_t dim);

// The gradient times its factor in the dtype of the weights; the gradient itself if that is the
// same.
at::Tensor converted_gradient(const UpdateItem& item);

// The sizes of a shard and its states.
struct ShardSize {
  int64_t elements = 0;                // of the weights
  std::vector<int64_t> state_bytes{};  // one per tensor; grows with elements if shards are cut
};

// `count` elements of a flattened shard from `first` on.
struct UpdatePiece {
  size_t shard = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const UpdatePiece&) const = default;
};
using UpdateChunk = std::vector<UpdatePiece>;

struct ChunkLimits {
  int64_t elements = 4 << 20;
  int64_t bytes = std::numeric_limits<int64_t>::max();  // of states, each rounded up to `unit`
  int64_t unit = 4096;
  bool may_cut = false;  // inside a shard, at multiples of `unit` bytes and of 64 elements
};

// Divides a step's shards into chunks that fit the memory available at a time. Pure arithmetic.
// Covers every shard that has elements or states, in order, each element once. A chunk exceeds the
// limits only if it is one shard that may not be cut, or one `unit` per state.
std::vector<UpdateChunk> cut_into_chunks(std::span<const ShardSize> shards,
                                         const ChunkLimits& limits);

}  // namespace trireme::train
