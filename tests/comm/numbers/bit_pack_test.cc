#include "trireme/comm/numbers/bit_pack.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::comm {
namespace {

TEST(BitPack, TheFirstCodeHasTheLowestBits) {
  const auto bytes = [](std::vector<int64_t> values) { return at::tensor(values).to(at::kByte); };
  harness::assert_same_bits(pack_codes(bytes({1, 0, 0, 0, 0, 0, 0, 1, 1}), 1), bytes({129, 1}),
                            "1 bit");
  harness::assert_same_bits(pack_codes(bytes({3, 0, 1, 2, 2}), 2), bytes({0b10010011, 2}),
                            "2 bits");
  harness::assert_same_bits(pack_codes(bytes({15, 1, 7}), 4), bytes({0x1f, 7}), "4 bits");
  harness::assert_same_bits(pack_codes(bytes({255, 7}), 8), bytes({255, 7}), "8 bits");
}

TEST(BitPack, UnpacksWhatItPacks) {
  for (const int bits : {1, 2, 4, 8}) {
    for (const int64_t count : {0, 1, 2, 7, 8, 9, 1001}) {
      const at::Tensor codes = (at::arange(count) * 37 % 251).remainder(1 << bits).to(at::kByte);
      const at::Tensor packed = pack_codes(codes, bits);
      EXPECT_EQ(packed.numel(), (count * bits + 7) / 8);
      EXPECT_EQ(packed.numel(), packed_bytes(count, bits));
      harness::assert_same_bits(unpack_codes(packed, bits, count), codes, "codes");
    }
  }
}

}  // namespace
}  // namespace trireme::comm
