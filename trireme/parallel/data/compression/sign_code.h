// One bit per number and one scale per block: how gradients and momentum travel as signs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

inline constexpr int64_t kSignBlock = 256;  // numbers of a block, at most

// The blocks of one gradient. A matrix [R, ...] with at least 16 columns has blocks of its own in
// each row, all of one length. Rows of an embedding differ in size by orders of magnitude, and one
// scale for several lets an optimizer that divides by the root of a variance diverge. Others are
// one row.
class SignBlocks {
 public:
  SignBlocks(at::IntArrayRef shape, at::Device device);

  int64_t num_blocks() const { return counts_.size(0); }
  int64_t width() const { return width_; }  // a multiple of 8, at most kSignBlock
  // [num_blocks, 1] int64: the numbers in each; what its row lacks to `width` is padding.
  const at::Tensor& counts() const { return counts_; }

  // Shapes: x of the gradient's shape -> [num_blocks, width] in new memory, padding is 0
  at::Tensor to_rows(const at::Tensor& x) const;
  // Shapes: rows [num_blocks, width] -> `x`'s shape; leaves the padding out
  void copy_from_rows(const at::Tensor& rows, const at::Tensor& x) const;

 private:
  int64_t num_rows_ = 0;
  int64_t columns_ = 0;
  int64_t width_ = 8;
  at::Tensor counts_;
};

// Some blocks of one gradient, as they are coded.
struct SignPart {
  at::Tensor rows;    // [b, width], padding is 0
  at::Tensor counts;  // [b, 1] int64
};

// Bytes of the parts' codes: the scales of all blocks, then their bits, the parts one after the
// other. `scale` is the scales' dtype.
int64_t sign_bytes(std::span<const SignPart> parts, at::ScalarType scale);

// The sign of each number and the root of each block's mean square, rounded to `scale`. Zero has
// the sign +. A block with a NaN or an infinity has one as its scale.
// Shapes: -> [sign_bytes()] uint8
// Source: Tang et al. 2021, arXiv:2102.02888 (1-bit Adam), whose block is the whole tensor
at::Tensor encode_signs(std::span<const SignPart> parts, at::ScalarType scale);
// What the codes stand for, in new rows shaped like those of `parts`; padding is 0.
std::vector<at::Tensor> decode_signs(const at::Tensor& code, std::span<const SignPart> parts,
                                     at::ScalarType scale);

}  // namespace trireme::parallel
