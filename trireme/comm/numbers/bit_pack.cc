#include "trireme/comm/numbers/bit_pack.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

int codes_per_byte(int bits) {
  TRIREME_ASSERT(bits == 1 || bits == 2 || bits == 4 || bits == 8, bits, " bits");
  return 8 / bits;
}

}  // namespace

int64_t packed_bytes(int64_t count, int bits) {
  const int64_t per_byte = codes_per_byte(bits);
  return (count + per_byte - 1) / per_byte;
}

at::Tensor pack_codes(const at::Tensor& codes, int bits) {
  const int64_t num_bytes = packed_bytes(codes.numel(), bits);
  const int per_byte = codes_per_byte(bits);
  const at::Tensor all =
      at::constant_pad_nd(codes, {0, num_bytes * per_byte - codes.numel()}).view({-1, per_byte});
  at::Tensor bytes = all.select(1, 0).clone(at::MemoryFormat::Contiguous);
  for (int i = 1; i < per_byte; ++i) {
    bytes.bitwise_or_(all.select(1, i).bitwise_left_shift(i * bits));
  }
  return bytes;
}

at::Tensor unpack_codes(const at::Tensor& bytes, int bits, int64_t count) {
  const int per_byte = codes_per_byte(bits);
  const at::Tensor codes = at::empty({bytes.numel(), per_byte}, bytes.options());
  for (int i = 0; i < per_byte; ++i) {
    codes.select(1, i).copy_(bytes.bitwise_right_shift(i * bits).bitwise_and((1 << bits) - 1));
  }
  return codes.view(-1).narrow(0, 0, count);
}

}  // namespace trireme::comm
