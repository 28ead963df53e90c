// The format of torch.save: a zip archive of a pickle and of the bytes of the storages that it
// refers to, and the tensors in such a file. No code in it is run (unpickler.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/file/stored_zip.h"
#include "trireme/checkpoint/foreign/pickle.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// The names by which pickles of PyTorch refer to dtypes and storages.
struct TorchName {
  at::ScalarType dtype;
  std::string_view name;     // "torch.float32"
  std::string_view storage;  // "torch.FloatStorage"; empty: has none of its own
};

// nullptr for other dtypes and names. `name` is a dtype's or a storage's.
const TorchName* find_torch_name(at::ScalarType dtype);
const TorchName* find_torch_name(std::string_view name);

// All of these names and `more`.
std::vector<std::string_view> torch_names(std::initializer_list<std::string_view> more);

// A tensor's place within the file: the elements from the first to the last in memory. Tensors may
// share storages.
struct StoredTensor {
  SourceTensor tensor{};
  std::vector<int64_t> strides{};
  uint64_t offset = 0;       // of its first element's bytes
  int64_t num_elements = 0;  // up to its last; 0 for a tensor without elements
};

// Thread safety: const methods may be called from any thread.
class TorchArchive {
 public:
  // The `size` bytes of the file from `begin` on.
  // Throws: CheckpointError with the path when they are not what torch.save writes
  TorchArchive(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size);

  // Throws: as unpickle()
  Pickle pickle() const;

  // The tensor that a value of the pickle is; nothing for other values.
  // Throws: CheckpointError when it reaches outside its storage, its storage outside the archive,
  //         or when it repeats elements up to more bytes than the file has
  std::optional<StoredTensor> find_tensor(const PickleValue& value) const;

  // The box of a tensor, for read(). Its range within the storage reaches from its first to its
  // last element.
  static StoredTensor part_of(const StoredTensor& stored, const mesh::Box& box);

  // Contiguous, on the CPU. Memory: the tensor, and its range within the storage if it is not
  // contiguous there
  // Throws: Error when the file cannot be read
  at::Tensor read(const StoredTensor& stored) const;

 private:
  StoredTensor tensor_of(const PickleValue& value) const;

  StoredZip zip_;
  std::string folder_;  // the name in front of every entry, with its slash
};

// The tensors in a file of torch.save: a state dict, or one within dicts and lists, as trainers
// save it together with other things. Names are the keys, joined by dots. Everything that is not a
// tensor is left out.
class StateDictSource : public TensorSource {
 public:
  // Throws: CheckpointError with the path when the file is damaged, refers to anything but plain
  //         data, or has a name twice; Error when this process cannot open it
  explicit StateDictSource(const std::filesystem::path& path);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override { return archive_.read(stored(name)); }
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override {
    return archive_.read(TorchArchive::part_of(stored(name), box));
  }
  std::string kind() const override { return "a state dict of PyTorch"; }

 private:
  const StoredTensor& stored(const std::string& name) const;

  std::filesystem::path path_;
  TorchArchive archive_;
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, SourceTensor> tensors_;
};

}  // namespace trireme::checkpoint
