// A model's weights as another program wrote them: a folder of Hugging Face's transformers, or any
// tensors with its names or ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/config.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/hugging_face_key.h"

namespace trireme::tasks::inline internal {

// Whether the folder has a config.json, which transformers writes and no run does.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// What a config.json says.
struct DescribedModel {
  model::HuggingFaceModel model;
  std::string source;  // for messages
};

// config: a config.json; empty: the one in the folder `source`. Without any the keys of the model
// say what it is.
// Throws: ConfigError when it says something that no model here is
DescribedModel read_foreign_model(const std::filesystem::path& source,
                                  std::filesystem::path config = {});

// Throws: ConfigError with the first key of [model] that is not what config.json says. A shorter
//         sequence may differ, and keys that do not change what the weights compute
void require_same_model(const DescribedModel& described, const model::ModelConfig& config);

// The dtype that config.json names, or else that of the tensors opened at `path`.
// Throws: CheckpointError when they have none that a model can have
c10::ScalarType dtype_of(const std::filesystem::path& path, const checkpoint::TensorSource& source,
                         const DescribedModel& described);

// A tensor that the model needs, and the name under which the source has it.
struct WantedTensor {
  model::HuggingFaceTensor tensor;
  std::string stored;  // "": it has none
};

// All that a model needs under the names of one form.
struct ForeignForm {
  std::vector<WantedTensor> wanted;
  std::string architecture;
  int64_t num_found = 0;
  bool has_adjacent_pairs = false;  // see model::split_parts()
  // How the names of tensors begin that are not the model's.
  std::vector<std::string_view> beside{};
};

// All parameters and buffers of a model under our names, made of the source's tensors when they are
// read. Memory: one parameter, which may be that of all experts of a block.
// Thread safety: as TensorSource
class ForeignWeights : public checkpoint::TensorSource {
 public:
  // source: what was opened at `path`. has_adjacent_pairs: see model::split_parts(). dtype: of the
  // parameters
  // Throws: CheckpointError when tensors are missing, unexpected, or of another shape; reading them
  //         also when they are damaged or not finite, and ConfigError when a value is too large for
  //         the dtype
  ForeignWeights(std::filesystem::path path, std::unique_ptr<checkpoint::TensorSource> source,
                 const model::ModelConfig& config, bool has_adjacent_pairs, c10::ScalarType dtype);
  ForeignWeights(const ForeignWeights&) = delete;
  ForeignWeights& operator=(const ForeignWeights&) = delete;

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override;
  std::string kind() const override { return source_->kind(); }

  // For save(); this must outlive them.
  const std::vector<checkpoint::Entry>& entries() const { return entries_; }
  // The class in transformers; "": the names are ours.
  const std::string& architecture() const { return form_.architecture; }
  int64_t num_source_tensors() const { return std::ssize(form_.wanted); }

 private:
  std::filesystem::path path_;
  std::unique_ptr<checkpoint::TensorSource> source_;
  ForeignForm form_;
  std::vector<checkpoint::Entry> entries_;
  std::map<std::string, checkpoint::SourceTensor> tensors_;
};

}  // namespace trireme::tasks::inline internal
