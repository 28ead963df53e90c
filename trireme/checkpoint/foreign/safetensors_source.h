// Safetensors files that another program wrote, as sources of tensors: one file, or several and an
// index, as Hugging Face's libraries write them: a JSON file whose "weight_map" has the file of
// each tensor. The index is compared with what the files hold.
#pragma once

#include <functional>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

class SafetensorsSource : public TensorSource {
 public:
  // Throws: as SafetensorsReader
  explicit SafetensorsSource(const std::filesystem::path& path);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override { return reader_.read(name); }
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override;
  std::string kind() const override { return "a safetensors file"; }

 private:
  SafetensorsReader reader_;
  std::map<std::string, SourceTensor> tensors_;
};

class ShardedSource : public TensorSource {
 public:
  using OpenShard = std::function<std::unique_ptr<TensorSource>(const std::filesystem::path&)>;

  // Reads the index and opens every file that it lists, in the index's folder.
  // Throws: CheckpointError when the index is damaged, lists a name that is not a plain one, or
  //         differs from what the files hold; what `open_shard` throws
  ShardedSource(const std::filesystem::path& index, const OpenShard& open_shard);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override { return shard_of(name).read(name); }
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override {
    return shard_of(name).read_box(name, box);
  }
  std::string kind() const override { return "a Hugging Face folder"; }

 private:
  const TensorSource& shard_of(const std::string& name) const;

  std::filesystem::path index_;
  std::map<std::string, std::unique_ptr<TensorSource>> shards_;  // by file
  std::map<std::string, std::string> files_;                     // by tensor
  std::map<std::string, SourceTensor> tensors_;
};

}  // namespace trireme::checkpoint
