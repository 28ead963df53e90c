// Packs small codes into bytes.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::comm {

// Bytes of `count` codes of 1, 2, 4 or 8 bits.
int64_t packed_bytes(int64_t count, int bits);

// The first code takes the lowest bits of the first byte; the last byte is filled with zeros.
// Shapes: codes [n] uint8, below 2^bits -> [packed_bytes(n, bits)] uint8
at::Tensor pack_codes(const at::Tensor& codes, int bits);
// Shapes: bytes [packed_bytes(count, bits)] uint8 -> [count] uint8
at::Tensor unpack_codes(const at::Tensor& bytes, int bits, int64_t count);

}  // namespace trireme::comm
