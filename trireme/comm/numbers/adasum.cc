#include "trireme/comm/numbers/adasum.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// In rows, whose sums no number of threads divides; then row by row.
double dot_in_order(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kRow = 1024, kRowsAtOnce = 1024;
  double sum = 0;
  for (int64_t first = 0; first < a.numel(); first += kRow * kRowsAtOnce) {
    const int64_t count = std::min(a.numel() - first, kRow * kRowsAtOnce);
    const at::Tensor products =
        a.narrow(0, first, count).to(at::kDouble) * b.narrow(0, first, count).to(at::kDouble);
    const at::Tensor rows =
        at::constant_pad_nd(products, {0, (kRow - count % kRow) % kRow}).view({-1, kRow});
    const at::Tensor sums = rows.sum(1).cpu();
    const double* const values = sums.const_data_ptr<double>();
    for (int64_t i = 0; i < sums.numel(); ++i) sum += values[i];
  }
  return sum;
}

}  // namespace

PairProducts products_of(const at::Tensor& a, const at::Tensor& b) {
  return {.ab = dot_in_order(a, b), .aa = dot_in_order(a, a), .bb = dot_in_order(b, b)};
}

at::Tensor add_pair(const at::Tensor& a, const at::Tensor& b, const PairProducts& products) {
  const auto& [ab, aa, bb] = products;
  // With zeros, ab is 0 too.
  const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1;
  const double of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
  return a.mul(of_a).add_(b.mul(of_b));
}

at::Tensor adasum(std::span<const at::Tensor> terms) {
  TRIREME_ASSERT(!terms.empty(), "no tensor to add");
  std::vector<at::Tensor> level(terms.begin(), terms.end());
  while (level.size() > 1) {
    std::vector<at::Tensor> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) {
      next.push_back(add_pair(level[i], level[i + 1], products_of(level[i], level[i + 1])));
    }
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0].clone();
}

}  // namespace trireme::comm
