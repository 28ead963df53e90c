#include "trireme/checkpoint/shards.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"
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

// Calls `use(chunk, at)` for the chunks that meet `part`, each with where it begins in the piece.
template <typename Use>
void for_each_chunk(const Piece& piece, const mesh::Box& part, const TensorRecord& record,
                    const Use& use) {
  // The range of bytes from the part's first to its last element.
  uint64_t first = 0, last = 0;
  for (size_t d = 0; d < part.size.size(); ++d) {
    const int64_t at = part.offset[d] - piece.box.offset[d];
    first = first * static_cast<uint64_t>(piece.box.size[d]) + static_cast<uint64_t>(at);
    last = last * static_cast<uint64_t>(piece.box.size[d]) +
           static_cast<uint64_t>(at + part.size[d] - 1);
  }
  const uint64_t width = c10::elementSize(record.dtype);
  uint64_t at = 0;
  for (const Chunk& chunk : piece.chunks) {
    if (at < (last + 1) * width && at + chunk.num_bytes > first * width) use(chunk, at);
    at += chunk.num_bytes;
  }
}

// Whether the piece's bytes lie in one file as they are in memory.
bool lies_in_one_place(const Piece& piece) {
  if (piece.chunks.empty()) return false;
  uint64_t next = piece.chunks.front().begin;
  for (const Chunk& chunk : piece.chunks) {
    if (chunk.codec != Codec::kRaw || chunk.file != piece.chunks.front().file ||
        chunk.begin != next)
      return false;
    next += chunk.num_bytes;
  }
  return true;
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

std::span<const std::byte> Shards::stored(const Chunk& chunk) {
  const FileRecord& file = manifest_.files.at(chunk.file);
  const auto data = open(file.name).data();
  if (chunk.stored_bytes > data.size() || chunk.begin > data.size() - chunk.stored_bytes)
    fail_damaged(folder_ / file.name, "a chunk of ", chunk.stored_bytes, " bytes begins at ",
                 chunk.begin, " of ", data.size());
  return data.subspan(chunk.begin, chunk.stored_bytes);
}

bool Shards::has_whole(const Chunk& chunk) {
  try {
    const auto bytes = stored(chunk);
    return chunk.codec == Codec::kRaw ? digest_of(bytes) == chunk.digest
                                      : checksum(bytes) == chunk.stored_checksum;
  } catch (const Error&) {
    return false;
  }
}

bool Shards::decode_into(const Chunk& chunk, const TensorRecord& record, std::span<std::byte> out) {
  return decode(chunk.codec, stored(chunk), c10::elementSize(record.dtype), out);
}

void Shards::check_entry(const std::string& name, const TensorRecord& record, const Piece& piece) {
  const SafetensorsReader& reader = open(piece.file);
  const TensorInfo* info = reader.find(name);
  const std::filesystem::path path = folder_ / piece.file;
  if (info == nullptr || info->dtype != record.dtype || info->shape != piece.box.size)
    fail_damaged(path, "\"", name, "\" is not in it as the manifest says");
  const std::string actual = checksum(reader.bytes(name));
  if (actual != piece.checksum)
    fail_damaged(path, "\"", name, "\" has checksum ", actual, ", expected ", piece.checksum);
}

void Shards::check(const std::string& name, const TensorRecord& record, const Piece& piece,
                   const mesh::Box& part) {
  if (manifest_.format_version == 1) return check_entry(name, record, piece);
  std::vector<std::byte> decoded;
  for_each_chunk(piece, part, record, [&](const Chunk& chunk, uint64_t /*at*/) {
    std::span<const std::byte> bytes;
    bool is_whole = true;
    if (chunk.codec == Codec::kRaw) {
      bytes = stored(chunk);
    } else {
      decoded.resize(chunk.num_bytes);
      is_whole =
          checksum(stored(chunk)) == chunk.stored_checksum && decode_into(chunk, record, decoded);
      bytes = decoded;
    }
    if (is_whole && digest_of(bytes) == chunk.digest) return;
    fail_damaged(folder_ / manifest_.files[chunk.file].name, "the ", chunk.stored_bytes,
                 " bytes at ", chunk.begin, ", of \"", name, "\", ",
                 is_whole ? concat("have digest ", to_text(digest_of(bytes)), ", expected ",
                                   to_text(chunk.digest))
                          : concat("are not those that unpack to ", chunk.num_bytes, " bytes"));
  });
}

at::Tensor Shards::view_piece(const std::string& name, const TensorRecord& record,
                              const Piece& piece, const mesh::Box& part) {
  if (manifest_.format_version == 1) return open(piece.file).view(name);
  if (lies_in_one_place(piece)) {
    const Chunk& first = piece.chunks.front();
    stored(piece.chunks.back());  // the file has all of them
    return open(manifest_.files.at(first.file).name)
        .view(first.begin, record.dtype, piece.box.size);
  }
  at::Tensor whole = at::empty(piece.box.size, at::TensorOptions().dtype(record.dtype));
  const std::span<std::byte> bytes(static_cast<std::byte*>(whole.mutable_data_ptr()),
                                   whole.nbytes());
  for_each_chunk(piece, part, record, [&](const Chunk& chunk, uint64_t at) {
    if (!decode_into(chunk, record, bytes.subspan(at, chunk.num_bytes)))
      fail_damaged(folder_ / manifest_.files[chunk.file].name, "\"", name, "\" does not unpack");
  });
  return whole;
}

void Shards::copy_box(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                      at::Tensor target) {
  const at::NoGradGuard no_grad;
  for (const Piece& piece : record.pieces) {
    const mesh::Box overlap = mesh::intersect(piece.box, box);
    if (overlap.numel() == 0) continue;
    const at::Tensor source = view_piece(name, record, piece, overlap);
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
