#include "trireme/train/optimizer/stochastic_rounding.h"

#include <array>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"

namespace trireme::train::inline internal {
namespace {

constexpr int64_t kGrain = 4096;
constexpr int64_t kPerDraw = 8;  // 16 bits each of the 128 drawn

// bf16 is the upper half of fp32. Adding a random lower half carries into it with a probability
// equal to the fraction that the lower half represents.
c10::BFloat16 round_by(float value, uint32_t random) {
  if (!std::isfinite(value)) return c10::BFloat16(value);
  const uint32_t bits = std::bit_cast<uint32_t>(value) + random;
  return {static_cast<uint16_t>(bits >> 16), c10::BFloat16::from_bits()};
}

}  // namespace

void round_stochastically(const at::Tensor& exact, at::Tensor rounded, int64_t first,
                          RandomKey key) {
  TRIREME_ASSERT(exact.scalar_type() == at::kFloat && rounded.scalar_type() == at::kBFloat16,
                 "stochastic rounding of ", toString(exact.scalar_type()), " to ",
                 toString(rounded.scalar_type()));
  if (!rounded.is_cpu()) {
    const at::Tensor host = at::empty(rounded.sizes(), rounded.options().device(at::kCPU));
    round_stochastically(exact.cpu(), host, first, key);
    rounded.copy_(host);
    return;
  }
  const auto* from = exact.const_data_ptr<float>();
  auto* to = rounded.mutable_data_ptr<c10::BFloat16>();
  at::parallel_for(0, exact.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, 4> bits{};
    int64_t drawn = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = first + i;
      if (index / kPerDraw != drawn) {
        drawn = index / kPerDraw;
        bits = random_bits(key, static_cast<uint64_t>(drawn));
      }
      const int64_t lane = index % kPerDraw;
      const uint32_t random = bits[static_cast<size_t>(lane / 2)] >> (lane % 2 * 16) & 0xffffu;
      to[i] = round_by(from[i], random);
    }
  });
}

}  // namespace trireme::train::inline internal
