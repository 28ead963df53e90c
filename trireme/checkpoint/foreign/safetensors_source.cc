#include "trireme/checkpoint/foreign/safetensors_source.h"

#include <utility>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

// Each stays open, and the kernel allows a process some ten thousand mappings.
constexpr size_t kMaxShards = 8192;

std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  size_of_file(path);  // a CheckpointError when there is none
  const std::string source = path.string();
  std::map<std::string, std::string> files;
  try {
    const nlohmann::json index = parse_json(read_file(path, JsonLimits{}.max_bytes), source);
    for (const auto& [name, file] : JsonView(index, source).at("weight_map").members()) {
      // A path would lead out of the folder.
      if (!is_plain_name(file.text())) file.fail(concat("a file of this folder: ", kPlainName));
      files.emplace(name, file.text());
    }
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  return files;
}

}  // namespace

SafetensorsSource::SafetensorsSource(const std::filesystem::path& path) : reader_(path) {
  for (const TensorInfo& info : reader_.tensors())
    tensors_.emplace(info.name, SourceTensor{.dtype = info.dtype, .shape = info.shape});
}

at::Tensor SafetensorsSource::read_box(const std::string& name, const mesh::Box& box) const {
  return view_box(reader_.view(name), box).clone(at::MemoryFormat::Contiguous);
}

ShardedSource::ShardedSource(const std::filesystem::path& index, const OpenShard& open_shard)
    : index_(index), files_(read_index(index)) {
  for (const auto& [name, file] : files_) {
    if (!shards_.contains(file)) {
      if (shards_.size() == kMaxShards)
        fail(index, "lists more than ", kMaxShards, " files; expected at most as many");
      shards_[file] = open_shard(index.parent_path() / file);
    }
    const auto& held = shards_.at(file)->tensors();
    // In both directions: an index that misses tensors would silently leave a part of the model
    // out.
    const auto found = held.find(name);
    if (found == held.end())
      fail(index, "lists the tensor ", in_quotes(name), " in ", file,
           ", which does not hold it: download both again");
    tensors_.insert(*found);
  }
  for (const auto& [file, shard] : shards_) {
    for (const auto& [name, tensor] : shard->tensors()) {
      const auto listed = files_.find(name);
      if (listed == files_.end() || listed->second != file)
        fail(index, "lists the tensor ", in_quotes(name), " in ",
             listed == files_.end() ? "no file" : listed->second, ", but ", file,
             " holds it: download both again");
    }
  }
}

const TensorSource& ShardedSource::shard_of(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) fail(index_, "there is no tensor ", in_quotes(name));
  return *shards_.at(found->second);
}

}  // namespace trireme::checkpoint
