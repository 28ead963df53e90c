// AdamW in one pass over memory, for bf16 training on CPUs: reads gradients as they are, and
// writes rounded weights with their fp32 masters. libtorch's kernel needs gradients in fp32 first
// and leaves the rounding to another pass.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

struct AdamWStep {
  double rate = 0;  // with the item's own scale
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  int64_t step = 1;
};

// bf16 gradients of fp32 weights on a CPU.
bool has_adamw_pass(const UpdateItem& item);

// Updates the item's weights, its states exp_avg and exp_avg_sq, and item.rounded if defined. Every
// element is computed in fp32 from its own numbers only, in the same bits whatever the number of
// threads and the instruction set.
void adamw_pass(const UpdateItem& item, const AdamWStep& step);

}  // namespace trireme::train
