// Finds the tensors of a model in a source, under the names of Hugging Face transformers, of
// torchtitan, or ours; and the router buffers of a mixture of experts: tensors of a checkpoint that
// are not parameters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/model_config.h"

namespace trireme::tasks {

// A tensor that the model needs, and the name under which the source has it.
struct WantedTensor {
  model::HuggingFaceTensor tensor;
  std::string stored;  // "": it has none
};

// All tensors that a model needs, under the names of one form. The embedding comes first.
struct ForeignForm {
  std::vector<WantedTensor> wanted;
  std::string architecture{};
  int64_t num_found = 0;
  bool has_adjacent_pairs = false;  // see model::split_parts()
  std::string head{};               // the source's tensor with a head of its own; "": it has none
  // Prefixes of tensor names that do not belong to the model.
  std::vector<std::string_view> beside{};
  const model::HuggingFaceKind* kind = nullptr;  // of transformers' names; null: they are others
};

// Finds `tensors`, also without `base_prefix`. A tied head may be stored in place of the embedding.
// head: the name of a head of its own; others: see HuggingFaceKind::other_prefixes
ForeignForm look_up(const checkpoint::TensorSource& source,
                    std::vector<model::HuggingFaceTensor> tensors, std::string_view base_prefix,
                    const model::ModelConfig& config, const std::string& head = "lm_head.weight",
                    std::span<const std::pair<std::string_view, std::string_view>> others = {});

// The form whose names the source has. Before it is laid out, the model's size is compared with the
// number of the source's tensors, because it comes from a file.
// Throws: CheckpointError when the source cannot be of so large a model
ForeignForm find_form(const std::filesystem::path& path, const checkpoint::TensorSource& source,
                      const model::ModelConfig& config);

// Whether two of the source's tensors have the same shape and values. Reads both.
bool are_equal(const checkpoint::TensorSource& source, const std::string& one,
               const std::string& other);

// The router buffers of a new run: zeros for everything that routers learn from step to step.
std::vector<checkpoint::Entry> expert_buffers(const model::ModelConfig& config);

}  // namespace trireme::tasks
