#include "trireme/plan/cost/kernel_time.h"

#include <algorithm>

namespace trireme::plan {
namespace {

// Of composed attention, times that a score is read or written in forward: by the product with the
// keys, masked softmax, dropout and its mask, and the product with the values.
constexpr double kPassesOverScores = 6;

}  // namespace

double product_seconds(const Device& device, const Product& product, double itemsize) {
  if (product.rows <= 0 || product.columns <= 0 || product.inner <= 0) return 0;
  const auto share = [&](double size) { return size / (size + device.half_size); };
  const double rate = device.peak(itemsize) * device.product_share * share(product.rows) *
                      share(product.columns) * share(product.inner);
  const double elements = product.rows * product.inner + product.inner * product.columns +
                          product.rows * product.columns;
  return std::max(product.flops() / rate,
                  elementwise_seconds(device, elements * product.count, itemsize));
}

double elementwise_seconds(const Device& device, double elements, double itemsize) {
  return elements * itemsize / (device.memory_rate * device.memory_share);
}

double attention_seconds(const Device& device, const AttentionCore& core, double itemsize,
                         bool is_fused) {
  const double rate = device.peak(itemsize) * device.attention_share;
  if (is_fused) return 0.5 * core.flops() / rate;
  // Both products have a narrow dimension, the head's.
  const Product one{core.keys, core.keys, core.width, core.heads * core.queries / core.keys};
  return 2 * product_seconds(device, one, itemsize) +
         elementwise_seconds(device, kPassesOverScores * core.scores(), itemsize);
}

}  // namespace trireme::plan
