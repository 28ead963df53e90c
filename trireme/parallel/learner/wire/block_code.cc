#include "trireme/parallel/learner/wire/block_code.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/numbers/bit_pack.h"
#include "trireme/comm/numbers/row_code.h"

namespace trireme::parallel {
namespace {

// Blocks that are coded at a time, so that intermediate values stay small. Of a whole number of
// blocks, every code but the last is a whole number of bytes.
constexpr int64_t kBlocksAtOnce = 1024;

struct CodeSize {
  int bits;
  int num_scales;  // of a block
};

CodeSize size_of(WireCode code) {
  switch (code) {
    case WireCode::kFloat32: return {32, 0};
    case WireCode::kInt8: return {8, 1};
    case WireCode::kInt4: return {4, 1};
    case WireCode::kInt2: return {2, 1};
    case WireCode::kTwoBits: return {2, 2};
    case WireCode::kSign: return {1, 1};
  }
  TRIREME_ASSERT(false, "unknown code");
}

int64_t num_blocks(int64_t count) { return (count + kWireBlock - 1) / kWireBlock; }

// The largest whole number that a code of `bits` has.
int largest(int bits) { return (1 << (bits - 1)) - 1; }

// A scale times the largest whole number must not overflow.
float largest_scale(WireCode code) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (code == WireCode::kTwoBits || code == WireCode::kSign) return kLargest;
  return std::nextafter(kLargest / static_cast<float>(largest(size_of(code).bits)), 0.0f);
}

struct Coded {
  at::Tensor scales;  // [b, num_scales] fp32
  at::Tensor codes;   // [b, 256] uint8
};

at::Tensor random_fractions(RandomKey key, int64_t first, const at::Tensor& rows) {
  std::vector<uint32_t> words(static_cast<size_t>(rows.numel()));
  fill_random_words(key, static_cast<uint64_t>(first / 4), words);  // four words to an index
  const at::Tensor fractions = at::empty({rows.numel()}, at::kFloat);
  float* const out = fractions.data_ptr<float>();
  for (size_t i = 0; i < words.size(); ++i) out[i] = static_cast<float>(words[i] >> 8) * 0x1p-24f;
  return fractions.view(rows.sizes()).to(rows.device());
}

// first: the index of the first number, for its random word
Coded code_whole(WireCode code, WireRounding rounding, const at::Tensor& rows, RandomKey key,
                 int64_t first) {
  const int bits = size_of(code).bits, most = largest(bits);
  const at::Tensor scales = comm::scales_of_largest(rows, most).clamp_max_(largest_scale(code));
  at::Tensor whole;
  if (rounding == WireRounding::kStochastic) {
    const at::Tensor exact = rows / scales;
    const at::Tensor below = exact.floor();
    // Compared and not added: a sum would round, and move numbers that are whole.
    whole = below + random_fractions(key, first, rows).lt(exact - below);
    // A scale of 0 gives 0 / 0 = NaN. The code then means nothing, but must be alike everywhere.
    whole.clamp_(-most, most).nan_to_num_(0, 0, 0);
  } else {
    whole = comm::nearest_whole(rows, scales, most);
  }
  return {scales, whole.to(at::kInt).bitwise_and_((1 << bits) - 1).to(at::kByte)};
}

// present: [b, 256] bool, false where the last block has no number
Coded code_magnitudes(WireCode code, const at::Tensor& rows, const at::Tensor& present) {
  const at::Tensor negative = rows.lt(0).to(at::kByte);
  const at::Tensor exact = rows.to(at::kDouble).abs_();  // a sum in fp32 might overflow
  const auto mean_of = [&](const at::Tensor& values, const at::Tensor& mask) {
    // A mean of nothing is 0.
    return values.mul(mask).sum(1, true).div_(mask.sum(1, true).clamp_min_(1));
  };
  if (code == WireCode::kSign) {
    return {comm::scales_of_norm(rows, present.sum(1, true)).to(at::kFloat), negative};
  }
  const at::Tensor is_high = exact.gt(mean_of(exact, present));
  const at::Tensor is_low = is_high.logical_not().logical_and_(present);
  return {at::cat({mean_of(exact, is_low), mean_of(exact, is_high)}, 1).to(at::kFloat),
          negative.bitwise_or_(is_high.to(at::kByte).mul_(2))};
}

at::Tensor decode_rows(WireCode code, const Coded& coded) {
  const auto sign_of = [](const at::Tensor& bit) { return bit.to(at::kFloat).mul_(-2).add_(1); };
  switch (code) {
    case WireCode::kSign: return sign_of(coded.codes).mul_(coded.scales);
    case WireCode::kTwoBits: {
      const at::Tensor is_high = coded.codes.ge(2);
      return sign_of(coded.codes.bitwise_and(1))
          .mul_(at::where(is_high, coded.scales.select(1, 1).unsqueeze(1),
                          coded.scales.select(1, 0).unsqueeze(1)));
    }
    default: {
      // Two's complement of few bits.
      const int half = 1 << (size_of(code).bits - 1);
      return coded.codes.bitwise_xor(half).to(at::kFloat).sub_(half).mul_(coded.scales);
    }
  }
}

void check_scales(WireCode code, const at::Tensor& scales) {
  const at::Tensor is_valid = scales.ge(0).logical_and_(scales.le(largest_scale(code)));
  if (is_valid.all().item<bool>()) return;
  throw CommError(concat("a coded difference has a scale that is not from 0 to ",
                         largest_scale(code), "; the message is damaged"));
}

}  // namespace

int64_t coded_bytes(WireCode code, int64_t count) {
  if (code == WireCode::kFloat32) return count * static_cast<int64_t>(sizeof(float));
  const auto [bits, num_scales] = size_of(code);
  return num_blocks(count) * num_scales * static_cast<int64_t>(sizeof(float)) +
         comm::packed_bytes(count, bits);
}

at::Tensor encode_values(WireCode code, WireRounding rounding, const at::Tensor& x, RandomKey key) {
  const int64_t count = x.numel();
  if (code == WireCode::kFloat32) return x.contiguous().view(at::kByte).clone();
  const auto [bits, num_scales] = size_of(code);
  const at::Tensor bytes = at::empty({coded_bytes(code, count)}, x.options().dtype(at::kByte));
  const int64_t scale_bytes = num_blocks(count) * num_scales * static_cast<int64_t>(sizeof(float));
  const at::Tensor scales = bytes.narrow(0, 0, scale_bytes).view(at::kFloat).view({-1, num_scales});
  const at::Tensor codes = bytes.narrow(0, scale_bytes, bytes.numel() - scale_bytes);
  for (int64_t first = 0; first < count; first += kBlocksAtOnce * kWireBlock) {
    const int64_t here = std::min(count - first, kBlocksAtOnce * kWireBlock);
    const int64_t blocks = num_blocks(here), missing = blocks * kWireBlock - here;
    const at::Tensor rows =
        at::constant_pad_nd(x.narrow(0, first, here), {0, missing}).view({blocks, kWireBlock});
    Coded coded;
    if (code == WireCode::kTwoBits || code == WireCode::kSign) {
      at::Tensor present = at::ones({blocks, kWireBlock}, rows.options().dtype(at::kBool));
      present.view(-1).narrow(0, here, missing).fill_(false);
      coded = code_magnitudes(code, rows, present);
    } else {
      coded = code_whole(code, rounding, rows, key, first);
    }
    scales.narrow(0, first / kWireBlock, blocks).copy_(coded.scales);
    codes.narrow(0, comm::packed_bytes(first, bits), comm::packed_bytes(here, bits))
        .copy_(comm::pack_codes(coded.codes.view(-1).narrow(0, 0, here), bits));
  }
  return bytes;
}

at::Tensor decode_values(WireCode code, const at::Tensor& bytes, int64_t count) {
  TRIREME_ASSERT(bytes.numel() == coded_bytes(code, count), bytes.numel(), " bytes for ", count,
                 " numbers");
  // fp32 numbers are read in place, where they must be aligned.
  const at::Tensor aligned = bytes.storage_offset() % static_cast<int64_t>(sizeof(float)) == 0
                                 ? bytes.contiguous()
                                 : bytes.clone();
  if (code == WireCode::kFloat32) {
    const at::Tensor values = aligned.view(at::kFloat).clone();
    if (values.isfinite().all().item<bool>()) return values;
    throw CommError("a difference that was received is not finite; the message is damaged");
  }
  const auto [bits, num_scales] = size_of(code);
  const int64_t scale_bytes = num_blocks(count) * num_scales * static_cast<int64_t>(sizeof(float));
  const at::Tensor scales =
      aligned.narrow(0, 0, scale_bytes).view(at::kFloat).view({-1, num_scales});
  check_scales(code, scales);
  const at::Tensor codes = aligned.narrow(0, scale_bytes, aligned.numel() - scale_bytes);
  const at::Tensor x = at::empty({count}, scales.options());
  for (int64_t first = 0; first < count; first += kBlocksAtOnce * kWireBlock) {
    const int64_t here = std::min(count - first, kBlocksAtOnce * kWireBlock);
    const int64_t blocks = num_blocks(here);
    const at::Tensor packed =
        codes.narrow(0, comm::packed_bytes(first, bits), comm::packed_bytes(here, bits));
    const at::Tensor all = at::constant_pad_nd(comm::unpack_codes(packed, bits, here),
                                               {0, blocks * kWireBlock - here});
    const at::Tensor rows = decode_rows(
        code, {scales.narrow(0, first / kWireBlock, blocks), all.view({blocks, kWireBlock})});
    x.narrow(0, first, here).copy_(rows.view(-1).narrow(0, 0, here));
  }
  return x;
}

}  // namespace trireme::parallel
