// What torch.save writes: a zip archive of a pickle and of the bytes of the storages that it refers
// to. No code in it is run (unpickler.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/stored_zip.h"
#include "trireme/checkpoint/foreign/pickle.h"
#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint::inline internal {

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

  // Contiguous, on the CPU. Memory: the tensor, and its range within the storage if it is not
  // contiguous there
  // Throws: Error when the file cannot be read
  at::Tensor read(const StoredTensor& stored) const;

 private:
  StoredTensor tensor_of(const PickleValue& value) const;

  StoredZip zip_;
  std::string folder_;  // the name in front of every entry, with its slash
};

}  // namespace trireme::checkpoint::inline internal
