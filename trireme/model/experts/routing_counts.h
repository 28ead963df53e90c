// What a model's routers count in a training step: a row of numbers for each sparse block. Rows add
// up over microbatches and ranks.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::model {

// One block's row. All but the first are sums over tokens.
struct RoutingCounts {
  std::span<const double> assignments;  // [E]: those that chose each expert, dropped ones too
  double tokens = 0;
  double dropped = 0;       // assignments without room
  double entropy = 0;       // of the token's scores divided by their sum, in nats
  double balance_loss = 0;  // before its factor, of the token's sequence or batch
  double z_loss = 0;        // before its factor
  double copied = 0;        // assignments to experts of which the token's rank had copies

  // The largest number of assignments over the mean, minus 1. 0: all experts have as many.
  // Source: Wang et al. 2024, arXiv:2408.15664, section 4.1 (MaxVio)
  double max_violation() const;
};

inline int64_t num_routing_counts(int64_t num_experts) { return num_experts + 6; }
// The row must outlive the result.
RoutingCounts routing_counts(std::span<const double> row);
// The part of the table that belongs to the block with this number among the sparse ones.
template <typename T>
std::span<T> row_of_block(std::span<T> table, int64_t block, int64_t num_experts) {
  const auto size = static_cast<size_t>(num_routing_counts(num_experts));
  return table.subspan(static_cast<size_t>(block) * size, size);
}

}  // namespace trireme::model
