// The safetensors file format: a JSON header, then the tensors' bytes without gaps. Every tool of
// the field can read it. Never trusts a file: checks everything in the header before use.
// Format: docs/design/checkpoint-format.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/file.h"

namespace trireme::checkpoint {

// "F32" and the like, and the reverse.
// Throws: ConfigError for a dtype that the format or this program lacks
std::string dtype_name(at::ScalarType dtype);
at::ScalarType parse_dtype(const std::string& name);

// The size of a regular file, or of one that a link leads to. Never opens anything else, such as a
// FIFO.
// Throws: CheckpointError when there is none; Error when it cannot be accessed
uint64_t size_of_file(const std::filesystem::path& path);

struct TensorInfo {
  std::string name{};
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> shape{};
  // The range of the tensor's bytes, counted from the end of the header. The writer fills it in.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Thread safety: const methods may be called from any thread.
class SafetensorsReader {
 public:
  // Maps the file; reads only the header.
  // Throws: CheckpointError with the path when the file is missing, truncated or invalid; Error
  //         when this process cannot open it (no permission, too many open files)
  explicit SafetensorsReader(const std::filesystem::path& path);

  // In the order of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr when the file has no such tensor.
  const TensorInfo* find(const std::string& name) const;
  uint64_t num_bytes() const { return file_->bytes().size(); }

  // The 8-byte length and the JSON after it; and all bytes after that.
  std::span<const std::byte> header() const;
  std::span<const std::byte> data() const;
  // Throws: CheckpointError when the file has no such tensor; so do view() and read()
  std::span<const std::byte> bytes(const std::string& name) const;
  // The mapped bytes themselves. They are read-only (a write is a segmentation fault) and stay
  // alive without the reader. A tensor that the file does not align to its element size is copied.
  at::Tensor view(const std::string& name) const;
  // The same for any tensor whose bytes lie from data()[begin] on.
  at::Tensor view(uint64_t begin, at::ScalarType dtype, at::IntArrayRef shape) const;
  // A copy.
  at::Tensor read(const std::string& name) const;

 private:
  void parse(const std::filesystem::path& path);
  void parse_header(std::string_view text);

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> file_;
  size_t data_begin_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;  // name -> position in tensors_
  std::map<std::string, std::string> metadata_;
};

// The header of a file with these tensors, whose ranges are set: its length in 8 bytes, and JSON
// that is padded so that both are a multiple of `alignment` bytes.
// Throws: CheckpointError when a name is not UTF-8, or the header is longer than the format allows
std::string safetensors_header(std::span<const TensorInfo> tensors,
                               const std::map<std::string, std::string>& metadata,
                               const std::filesystem::path& path, size_t alignment = 8);

// Writes a file from front to back, with one tensor in memory at a time.
class SafetensorsWriter {
 public:
  // Writes the header. Larger elements go first, so every tensor is aligned.
  // Throws: CheckpointError when the names or shapes do not fit the format; Error with path and
  //         reason when it cannot be written; so do write() and finish()
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // The order in which write() expects them.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  uint64_t num_bytes() const { return num_bytes_; }
  const std::string& header_checksum() const { return header_checksum_; }

  // Writes the next tensor, from any device and with any strides. Returns the checksum of its
  // bytes.
  std::string write(const at::Tensor& tensor);
  // Writes the elements of the next tensor that follow those written so far, row-major; the tensor
  // is complete when it has all.
  void write_part(const at::Tensor& part);
  // Call after the last tensor. Without it the file is incomplete.
  void finish(bool fsync);

 private:
  std::filesystem::path path_;
  OutputFile file_;
  std::vector<TensorInfo> tensors_;
  size_t next_ = 0;
  uint64_t part_bytes_ = 0;  // of tensors_[next_], written so far
  uint64_t num_bytes_ = 0;   // of the whole file
  std::string header_checksum_;
};

// Writes a whole file. It is on the disk when the call returns.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme::checkpoint
