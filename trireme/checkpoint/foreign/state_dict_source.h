// The tensors in a file of torch.save: a state dict, or one within dicts and lists, as trainers
// save it together with other things. Names are the keys, joined by dots. Everything that is not a
// tensor is left out.
#pragma once

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/foreign/torch_archive.h"

namespace trireme::checkpoint::inline internal {

class StateDictSource : public TensorSource {
 public:
  // Throws: CheckpointError with the path when the file is damaged, refers to anything but plain
  //         data, or has a name twice; Error when this process cannot open it
  explicit StateDictSource(const std::filesystem::path& path);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override;
  std::string kind() const override { return "a state dict of PyTorch"; }

 private:
  std::filesystem::path path_;
  TorchArchive archive_;
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, SourceTensor> tensors_;
};

}  // namespace trireme::checkpoint::inline internal
