#include "trireme/train/optimizer/update_rule.h"

#include <ATen/ATen.h>

namespace trireme::train {

StateSpec state_like(const parallel::Shard& shard, const std::string& name) {
  return {name, shard.weights.sizes().vec(), shard.layout};
}

at::Tensor converted_gradient(const UpdateItem& item) {
  return item.gradient.detach().to(item.weights.scalar_type());
}

}  // namespace trireme::train
