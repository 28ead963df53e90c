// What a run with learners has recorded of one of them. Learners are compared one by one, each with
// its like.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::verify {

// Learners whose records lie below the folder of a run; 0: it has none.
int num_learners(const std::filesystem::path& folder);

// What the name of a checkpoint's tensor says, in a run with learners or without.
bool is_state(std::string_view name);
// A weight, a copy of one in fp32, or what learners keep of weights for their exchanges.
bool is_like_weight(std::string_view name);
// All learners have it in common. It is among the tensors of the first: the weights
// "learners.common.NAME", and what the outer optimizer keeps, such as "learners.momentum.NAME".
bool is_common(std::string_view name);

// The tensors of a run's checkpoint that are of one learner, by the names that they have without
// learners. They are not copied.
class LearnerTensors final : public checkpoint::TensorSource {
 public:
  LearnerTensors(std::unique_ptr<const checkpoint::TensorSource> all, int learner);

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override { return all_->read(saved(name)); }
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override {
    return all_->read_box(saved(name), box);
  }
  std::string kind() const override { return all_->kind(); }

 private:
  const std::string& saved(const std::string& name) const;

  std::unique_ptr<const checkpoint::TensorSource> all_;
  std::map<std::string, checkpoint::SourceTensor> tensors_;
  std::map<std::string, std::string> saved_;  // names in the checkpoint, by those here
};

}  // namespace trireme::verify
