// A model's weights as another program wrote them: a folder of Hugging Face's transformers, or any
// tensors with its names or ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/model_config.h"
#include "trireme/tasks/language/foreign/foreign_form.h"

namespace trireme::tasks {

// All parameters and buffers of a model under our names, made of the source's tensors when they are
// read. Memory: one parameter, which may be that of all experts of a block.
// Thread safety: as TensorSource
class ForeignWeights : public checkpoint::TensorSource {
 public:
  // source: what was opened at `path`. has_adjacent_pairs: see model::split_parts(). dtype: of the
  // parameters. may_lack: patterns of parameters that are left out where the source lacks them
  // Throws: CheckpointError when tensors are missing or unexpected or have a different shape, or a
  //         head would be lost; reading them also when they are damaged or not finite, and
  //         ConfigError when a value is too large for the dtype
  ForeignWeights(std::filesystem::path path, std::unique_ptr<checkpoint::TensorSource> source,
                 const model::ModelConfig& config, bool has_adjacent_pairs, c10::ScalarType dtype,
                 const std::string& may_lack = "");
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
  // Which tensors are left out because this model does not compute them, in words; "": none.
  const std::string& left_out() const { return left_out_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<checkpoint::TensorSource> source_;
  ForeignForm form_;
  std::string left_out_;
  std::vector<checkpoint::Entry> entries_;
  std::map<std::string, checkpoint::SourceTensor> tensors_;
};

}  // namespace trireme::tasks
