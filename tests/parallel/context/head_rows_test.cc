#include "trireme/parallel/context/head_rows.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kTokens = 5;

// [B, N, t, H] with dense rows of heads, out of wider memory, or laid out by head.
std::vector<at::Tensor> layouts(int64_t H, at::ScalarType dtype) {
  const at::Tensor wide = at::randn({kBatch, kTokens, kHeads + 2, H}).to(dtype);
  return {at::randn({kBatch, kTokens, kHeads, H}).to(dtype).transpose(1, 2),
          wide.narrow(2, 1, kHeads).transpose(1, 2),
          at::randn({kBatch, kHeads, kTokens, H}).to(dtype)};
}

at::Tensor reference(const WeightedRows& a, const WeightedRows& b, at::ScalarType dtype) {
  const at::ScalarType wide = accumulation_dtype(dtype);
  const auto weighted = [&](const WeightedRows& x) {
    const at::Tensor rows = x.rows_BNtH.to(wide);
    return x.weight_BNt.defined() ? rows * x.weight_BNt.unsqueeze(-1) : rows;
  };
  return (b.rows_BNtH.defined() ? weighted(a) + weighted(b) : weighted(a)).to(dtype).contiguous();
}

// Products and sums of one element each, rounded as ATen's operators do: the same bits. fp16, which
// has no loop, may fuse a product with a sum: one unit in the last place.
TEST(HeadRows, AreATensOperatorsInEveryDtypeAndLayout) {
  at::manual_seed(1);
  const std::vector<std::vector<at::ScalarType>> dtypes = {
      {at::kBFloat16, at::kFloat}, {at::kDouble}, {at::kHalf, at::kFloat}};
  for (const std::vector<at::ScalarType>& kinds : dtypes) {
    for (const int64_t H : {1, 8, 50}) {
      for (const at::ScalarType of_to : kinds) {
        for (const at::ScalarType of_a : kinds) {
          for (const at::ScalarType of_b : kinds) {
            const at::ScalarType wide = accumulation_dtype(of_to);
            const auto weights = [&] {
              return at::rand({kBatch, kTokens, kHeads}, wide).transpose(1, 2);
            };
            const auto to = layouts(H, of_to), a = layouts(H, of_a), b = layouts(H, of_b);
            for (size_t i = 0; i < to.size(); ++i) {
              const at::Tensor x = a[(i + 1) % 3], y = b[(i + 2) % 3];
              for (const auto& [first, second] : std::vector<std::pair<WeightedRows, WeightedRows>>{
                       {{a[i]}, {b[i]}},
                       {{x, weights()}, {y, weights()}},
                       {{x}, {y, weights()}},
                       {{x}, {}},
                       {{y, weights()}, {}}}) {
                const at::Tensor expected = reference(first, second, of_to);
                combine_rows(to[i], first, second);
                const std::string what = concat(of_to, " ", of_a, " ", of_b, " ", H, " ", i);
                if (kinds.front() == at::kHalf) {
                  const double unit = of_to == at::kHalf ? 0x1p-10 : 0x1p-23;
                  harness::assert_close(to[i], expected, unit, 0, what);
                } else {
                  harness::assert_same_bits(to[i].contiguous(), expected, what);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(HeadRows, AddInPlaceOnAnyNumberOfThreads) {
  const auto of = [](at::ScalarType dtype) {
    return at::randn({3, 70, 4, 64}).to(dtype).transpose(1, 2);
  };
  const at::Tensor sum = of(at::kBFloat16), part = of(at::kFloat);
  const at::Tensor weight = at::rand({3, 70, 4}).transpose(1, 2);
  const at::Tensor expected = reference({sum, weight}, {part}, at::kBFloat16);
  const int before = at::get_num_threads();
  for (const int threads : {1, 5}) {
    at::set_num_threads(threads);
    const at::Tensor to = sum.clone();
    combine_rows(to, {to, weight}, {part});
    harness::assert_same_bits(to.contiguous(), expected, "threads");
  }
  at::set_num_threads(before);
}

TEST(HeadRows, OfNothingAreNothing) {
  for (const int64_t tokens : {0, 3}) {
    const at::Tensor none = at::empty({tokens == 0 ? 2 : 0, 2, tokens, 4}, at::kBFloat16);
    combine_rows(none, {none, at::empty({none.size(0), 2, tokens})}, {none});
  }
}

}  // namespace
}  // namespace trireme::parallel
