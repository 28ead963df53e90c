#include "trireme/checkpoint/shards.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::checkpoint::inline internal {
namespace {

template <typename... Args>
[[noreturn]] void fail_damaged(const std::filesystem::path& path, const Args&... args) {
  throw CheckpointError(concat(path.string(), ": ", args...,
                               ": the file is damaged; use another checkpoint or a copy"));
}

// The part of `tensor` that `part` covers. `box` is the place of `tensor` in the global tensor.
at::Tensor view_part(at::Tensor tensor, const mesh::Box& box, const mesh::Box& part) {
  for (size_t d = 0; d < part.size.size(); ++d)
    tensor = tensor.narrow(static_cast<int64_t>(d), part.offset[d] - box.offset[d], part.size[d]);
  return tensor;
}

}  // namespace

Shards::Shards(std::filesystem::path folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(manifest) {}

const SafetensorsReader& Shards::open(const std::string& file) {
  std::unique_ptr<SafetensorsReader>& reader = readers_[file];
  if (reader) return *reader;
  const auto record = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                   [&](const FileRecord& known) { return known.name == file; });
  TRIREME_ASSERT(record != manifest_.files.end(), "file ", file, " is not in the manifest");
  const std::filesystem::path path = folder_ / file;
  // Before the reader's own checks, whose messages are about the format and not the cause.
  const uint64_t num_bytes = size_of_file(path);
  if (num_bytes != record->num_bytes)
    fail_damaged(path, num_bytes, " bytes, expected ", record->num_bytes,
                 num_bytes < record->num_bytes ? " (truncated)" : "");
  auto opened = std::make_unique<SafetensorsReader>(path);
  const std::string actual = checksum(opened->header());
  if (actual != record->header_checksum)
    fail_damaged(path, "header checksum ", actual, ", expected ", record->header_checksum);
  reader = std::move(opened);
  return *reader;
}

void Shards::check(const std::string& name, const TensorRecord& record, const Piece& piece) {
  const SafetensorsReader& reader = open(piece.file);
  const TensorInfo* info = reader.find(name);
  const std::filesystem::path path = folder_ / piece.file;
  if (info == nullptr || info->dtype != record.dtype || info->shape != piece.box.size)
    fail_damaged(path, "\"", name, "\" is not in it as the manifest says");
  const std::string actual = checksum(reader.bytes(name));
  if (actual != piece.checksum)
    fail_damaged(path, "\"", name, "\" has checksum ", actual, ", expected ", piece.checksum);
}

void Shards::copy_box(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                      at::Tensor target) {
  const at::NoGradGuard no_grad;
  for (const Piece& piece : record.pieces) {
    const mesh::Box overlap = mesh::intersect(piece.box, box);
    if (overlap.numel() == 0) continue;
    const at::Tensor source = open(piece.file).view(name);
    view_part(target, box, overlap).copy_(view_part(source, piece.box, overlap));
  }
}

at::Tensor Shards::read(const std::string& name, const TensorRecord& record) {
  for (const Piece& piece : record.pieces) check(name, record, piece);
  at::Tensor tensor = at::empty(record.shape, at::TensorOptions().dtype(record.dtype));
  copy_box(name, record, {std::vector<int64_t>(record.shape.size(), 0), record.shape}, tensor);
  return tensor;
}

at::Tensor read_tensor(const std::filesystem::path& folder, const Manifest& manifest,
                       const std::string& name) {
  const auto found = manifest.tensors.find(name);
  if (found == manifest.tensors.end())
    throw CheckpointError(concat(folder.string(), ": there is no tensor \"", name, "\" among its ",
                                 manifest.tensors.size()));
  return Shards(folder, manifest).read(name, found->second);
}

}  // namespace trireme::checkpoint::inline internal
