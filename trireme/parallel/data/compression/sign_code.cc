#include "trireme/parallel/data/compression/sign_code.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/numbers/bit_pack.h"
#include "trireme/comm/numbers/row_code.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kFewestColumns = 16;  // of a matrix whose rows have blocks of their own
constexpr int64_t kBitsOfByte = 8;

int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

int64_t num_blocks_of(std::span<const SignPart> parts) {
  int64_t blocks = 0;
  for (const SignPart& part : parts) blocks += part.rows.size(0);
  return blocks;
}

int64_t num_bits_of(std::span<const SignPart> parts) {
  int64_t bits = 0;
  for (const SignPart& part : parts) bits += part.rows.numel();
  return bits;
}

}  // namespace

SignBlocks::SignBlocks(at::IntArrayRef shape, at::Device device) {
  const int64_t numel = c10::multiply_integers(shape);
  const int64_t columns = shape.empty() || shape[0] == 0 ? numel : numel / shape[0];
  const bool by_row = shape.size() > 1 && columns >= kFewestColumns;
  num_rows_ = by_row ? shape[0] : std::min<int64_t>(numel, 1);
  columns_ = by_row ? columns : numel;
  const int64_t per_row = std::max<int64_t>(1, rounded_up(columns_, kSignBlock) / kSignBlock);
  width_ = std::max(kBitsOfByte, rounded_up(rounded_up(columns_, per_row) / per_row, kBitsOfByte));
  counts_ = (columns_ - at::arange(per_row, at::device(device).dtype(at::kLong)) * width_)
                .clamp(0, width_)
                .repeat({num_rows_})
                .view({-1, 1});
}

at::Tensor SignBlocks::to_rows(const at::Tensor& x) const {
  const int64_t per_row = num_rows_ == 0 ? 0 : num_blocks() / num_rows_;
  return at::constant_pad_nd(x.reshape({num_rows_, columns_}), {0, per_row * width_ - columns_})
      .reshape({num_blocks(), width_});
}

void SignBlocks::copy_from_rows(const at::Tensor& rows, const at::Tensor& x) const {
  if (x.numel() == 0) return;
  x.copy_(rows.view({num_rows_, -1}).narrow(1, 0, columns_).reshape(x.sizes()));
}

int64_t sign_bytes(std::span<const SignPart> parts, at::ScalarType scale) {
  return num_blocks_of(parts) * static_cast<int64_t>(c10::elementSize(scale)) +
         num_bits_of(parts) / kBitsOfByte;
}

at::Tensor encode_signs(std::span<const SignPart> parts, at::ScalarType scale) {
  TRIREME_ASSERT(!parts.empty(), "no part to encode");
  std::vector<at::Tensor> scales, bytes;
  for (const SignPart& part : parts) {
    scales.push_back(comm::scales_of_norm(part.rows, part.counts).to(scale).view(-1));
    bytes.push_back(comm::pack_codes(part.rows.lt(0).to(at::kByte).view(-1), 1));
  }
  bytes.insert(bytes.begin(), at::cat(scales).view(at::kByte));
  return at::cat(bytes);
}

std::vector<at::Tensor> decode_signs(const at::Tensor& code, std::span<const SignPart> parts,
                                     at::ScalarType scale) {
  TRIREME_ASSERT(code.numel() == sign_bytes(parts, scale), code.numel(), " bytes of signs");
  int64_t scale_at = 0;
  int64_t at = num_blocks_of(parts) * static_cast<int64_t>(c10::elementSize(scale));
  const at::Tensor scales = code.narrow(0, 0, at).view(scale);
  std::vector<at::Tensor> result;
  for (const SignPart& part : parts) {
    const int64_t blocks = part.rows.size(0), width = part.rows.size(1);
    const int64_t num_bytes = blocks * width / kBitsOfByte;
    const at::Tensor bits =
        comm::unpack_codes(code.narrow(0, at, num_bytes), 1, blocks * width).view({blocks, width});
    const at::Tensor sizes =
        scales.narrow(0, scale_at, blocks).to(part.rows.scalar_type()).view({blocks, 1});
    const at::Tensor is_there = at::arange(width, part.counts.options()).lt(part.counts);
    result.push_back(bits.to(part.rows.scalar_type())
                         .mul_(-2)
                         .add_(1)
                         .mul_(sizes)
                         .masked_fill_(is_there.logical_not(), 0));
    scale_at += blocks;
    at += num_bytes;
  }
  return result;
}

}  // namespace trireme::parallel
