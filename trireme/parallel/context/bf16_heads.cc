#include "trireme/parallel/context/bf16_heads.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel::internal {

Bits rows_of(const at::Tensor& x_BNtH, int64_t sequence, int64_t head) {
  return {static_cast<const uint16_t*>(x_BNtH.const_data_ptr()) + sequence * x_BNtH.stride(0) +
              head * x_BNtH.stride(1),
          x_BNtH.stride(2)};
}
Rows<uint16_t> rows_to(const at::Tensor& x_BNtH, int64_t sequence, int64_t head) {
  const Bits rows = rows_of(x_BNtH, sequence, head);
  return {const_cast<uint16_t*>(rows.data), rows.stride};
}

Rows<float> floats_to(const at::Tensor& x_BNtH, int64_t sequence, int64_t head) {
  return {x_BNtH.mutable_data_ptr<float>() + sequence * x_BNtH.stride(0) + head * x_BNtH.stride(1),
          x_BNtH.stride(2)};
}

at::Tensor with_dense_rows(const at::Tensor& x_BNtH) {
  return x_BNtH.stride(3) == 1 ? x_BNtH : x_BNtH.contiguous();
}

Scratch::Scratch(int64_t bytes) : memory_(at::empty({bytes}, at::kByte)) {}

uint8_t* Scratch::take(int64_t bytes) {
  TRIREME_ASSERT(used_ + bytes <= memory_.numel(), "scratch of ", memory_.numel(), " bytes");
  uint8_t* const memory = memory_.mutable_data_ptr<uint8_t>() + used_;
  used_ += bytes;
  return memory;
}

Bits whole_rows(Bits x, int64_t first, int64_t count, int64_t width, Rows<uint16_t> spare) {
  if (count == kRows) return x.at(first);
  for (int64_t row = 0; row < kRows; ++row) {
    uint16_t* to = spare.at(row).data;
    if (row < count) {
      std::copy_n(x.at(first + row).data, width, to);
    } else {
      std::fill_n(to, width, uint16_t{0});
    }
  }
  return {spare.data, spare.stride};
}

void pack_columns(Bits x, int64_t n, int64_t H, const Panels<uint32_t>& to) {
  for_each_panel(n, [&](int64_t first, int64_t count) {
    const Pairs panel = to.at(first);
    pack_transpose(x.at(first), H, count, panel);
    for (int64_t row = 0; row < H / 2; ++row)
      std::fill(panel.at(row, count).data, panel.at(row, round_up(count)).data, 0U);
  });
}

void pack_whole_rows(Bits x, int64_t n, int64_t H, Pairs to) {
  pack_rows(x, n, H, to);
  std::fill(to.at((n + 1) / 2).data, to.at(round_up(n) / 2).data, 0U);
}

}  // namespace trireme::parallel::internal
