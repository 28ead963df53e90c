// How an optimizer's states are kept between updates: as they are, in bf16, or in 8 bits. An update
// widens them and narrows them again.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/optimizer/optimizer_config.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

// Elements of a row that share a scale in int8.
inline constexpr int64_t kStateBlock = 64;

// A tensor of a StateStore and a checkpoint.
struct HeldTensor {
  std::string name;
  std::vector<int64_t> local_shape;
  mesh::Layout layout;
  at::ScalarType dtype = at::kFloat;
  int64_t elements_each = 1;  // of the parameter's, that one element is for

  int64_t num_bytes() const;
};

// The tensors that keep one state of a rule, or a parameter's master.
struct HeldState {
  StateDtype format = StateDtype::kFp32;
  std::vector<HeldTensor>
      tensors;               // one; in int8 two: codes [..., C], scales [..., C / kStateBlock]
  bool is_positive = false;  // see StateSpec
};

// Whether each rank's part of a parameter has whole blocks of int8 states, or none.
// Throws: ConfigError when a part ends within a block
void check_blocks(std::string_view name, const mesh::Layout& layout);

// The format of a saved state whose first tensor has this dtype.
StateDtype format_of(at::ScalarType dtype);

// `wide`: the update's dtype, that of kFp32. What is not like its parameter stays wide, such as
// Adafactor's factors; in int8 also the states of vectors and of parameters whose rows are no whole
// blocks.
// Bytes per element: wide 4 (fp64 weights 8), bf16 2, int8 1 + 4 / kStateBlock
// Throws: ConfigError when this rank's part of the parameter ends within a block
HeldState held_state(const StateSpec& state, const parallel::Shard& shard, StateDtype format,
                     at::ScalarType wide);

// The numbers that `tensors`, pieces of a state's, stand for: the first of them if it has `wide`,
// else a new tensor of its shape.
at::Tensor widened(const HeldState& state, std::span<const at::Tensor> tensors,
                   at::ScalarType wide);

// Rounds fp32 to bf16 stochastically, because most changes of an average are below half a unit of
// its last place.
using Round = std::function<void(const at::Tensor& exact, const at::Tensor& rounded)>;
// Keeps `values`, of widened()'s shape and on the device of `tensors`, in them. bf16 is rounded by
// `round`, int8 to nearest.
void narrow(const HeldState& state, const at::Tensor& values, std::span<const at::Tensor> tensors,
            const Round& round);

// Blockwise dynamic quantisation. A block's scale is its largest magnitude; a code stands for one
// of 256 numbers in [-1, 1], or in [0, 1] if all are positive, whose spacing grows with them.
// Source: Dettmers et al. 2022, arXiv:2110.02861, sections 2.1 and 2.2
// Shapes: values fp32 [..., kStateBlock n], codes uint8 alike, scales fp32 [..., n]; contiguous
void encode_blocks(const at::Tensor& values, at::Tensor codes, at::Tensor scales, bool is_positive);
void decode_blocks(const at::Tensor& codes, const at::Tensor& scales, at::Tensor values,
                   bool is_positive);

}  // namespace trireme::train
