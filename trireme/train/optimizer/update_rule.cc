#include "trireme/train/optimizer/update_rule.h"

#include <ATen/ATen.h>

namespace trireme::train {

bool is_expert_stack(const mesh::Layout& layout) {
  const mesh::Layout& outermost = layout.outer() != nullptr ? *layout.outer() : layout;
  return outermost.shape().size() == 3 && !outermost.axes().empty() &&
         outermost.axes().front().name == "expert";
}

StateSpec state_like(const parallel::Shard& shard, const std::string& name) {
  return {name, shard.weights.sizes().vec(), shard.layout};
}

at::Tensor converted_gradient(const UpdateItem& item) {
  return item.gradient.detach().to(item.weights.scalar_type());
}

}  // namespace trireme::train
