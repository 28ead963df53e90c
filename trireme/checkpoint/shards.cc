#include "trireme/checkpoint/shards.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/place_bytes.h"

namespace trireme::checkpoint {

// Shards turns pieces of the manifest into bytes that have been checked. A chunk's digest is
// compared each time just before the chunk is used, while its bytes are in the processor's cache; a
// check of whole files first would read them twice. Files are mapped and opened on demand, always
// in the calling thread: for_each() runs on the compute threads, and they may only look files up.
// That is why read_chunks() and read_patches() open every file in a first loop and read in a
// second. The pointers in patch_spans_ and checked_entries_ are those of the manifest's own
// records, which must stay where they are.

namespace {

template <typename... Args>
[[noreturn]] void fail_damaged(const std::filesystem::path& path, const Args&... args) {
  throw CheckpointError(concat(path.string(), ": ", args...,
                               ": the file is damaged; use another checkpoint or a copy"));
}

// Fewer are read before other threads have begun.
constexpr uint64_t kBytesForThreads = 4 * kChunkBytes;

bool is_aligned(std::span<const std::byte> bytes, size_t alignment) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0;
}

}  // namespace

Shards::Shards(std::filesystem::path folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(manifest) {}

void for_each_chunk(const Piece& piece, const mesh::Box& part, const TensorRecord& record,
                    const std::function<void(const Chunk& chunk, uint64_t at)>& use) {
  // The range of bytes from the part's first to its last element.
  // All chunks between the first and the last byte are taken, although the part may skip some in
  // between. Parts are mostly whole rows, and then there are none.
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

const SafetensorsReader& Shards::open(const std::string& file) {
  const auto known = readers_.find(file);
  if (known != readers_.end()) return *known->second;
  const auto record = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                   [&](const FileRecord& known) { return known.name == file; });
  TRIREME_ASSERT(record != manifest_.files.end(), "file ", file, " is not in the manifest");
  const std::filesystem::path path = folder_ / file;
  // Only a size can tell a truncated file from a damaged one.
  // Before the reader's own checks, whose messages are about the format and not the cause.
  const uint64_t num_bytes = size_of_file(path);
  if (num_bytes != record->num_bytes)
    fail_damaged(path, num_bytes, " bytes, expected ", record->num_bytes,
                 num_bytes < record->num_bytes ? " (truncated)" : "");
  auto opened = std::make_unique<SafetensorsReader>(path);
  const std::string actual = checksum(opened->header());
  if (actual != record->header_checksum)
    fail_damaged(path, "header checksum ", actual, ", expected ", record->header_checksum);
  return *readers_.emplace(file, std::move(opened)).first->second;
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
    // A packed chunk is not unpacked: its stored bytes have a checksum of their own.
    return chunk.codec == Codec::kRaw ? digest_of(bytes) == chunk.digest
                                      : checksum(bytes) == chunk.stored_checksum;
  } catch (const Error&) {
    // Whatever is wrong with it, the caller writes the chunk again.
    return false;
  }
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
  num_bytes_read_ += std::ssize(reader.bytes(name));
}

std::span<const std::byte> Shards::read_chunk(const std::string& name, const TensorRecord& record,
                                              const Chunk& chunk, std::vector<std::byte>& scratch) {
  return read_chunk(name, c10::elementSize(record.dtype), chunk, scratch);
}

std::span<const std::byte> Shards::read_chunk(const std::string& name, size_t width,
                                              const Chunk& chunk, std::vector<std::byte>& scratch) {
  std::span<const std::byte> bytes = stored(chunk);
  bool is_whole = true;
  if (chunk.codec != Codec::kRaw) {
    scratch.resize(chunk.num_bytes);
    is_whole =
        // First the stored bytes, then the unpacking: zstd is not given bytes that are known to be
        // damaged.
        checksum(bytes) == chunk.stored_checksum && decode(chunk.codec, bytes, width, scratch);
    bytes = scratch;
  } else if (!is_aligned(bytes, width)) {
    // Chunks before it may have any length, and kernels need whole elements at their addresses.
    scratch.assign(bytes.begin(), bytes.end());
    bytes = scratch;
  }
  const Digest digest = digest_of(bytes);
  if (!is_whole || digest != chunk.digest) {
    fail_damaged(folder_ / manifest_.files[chunk.file].name, "the ", chunk.stored_bytes,
                 " bytes at ", chunk.begin, ", of \"", name, "\", ",
                 is_whole
                     ? concat("have digest ", to_text(digest), ", expected ", to_text(chunk.digest))
                     : concat("are not those that unpack to ", chunk.num_bytes, " bytes"));
  }
  num_bytes_read_ += std::ssize(bytes);
  return bytes;
}

void Shards::check(const std::string& name, const TensorRecord& record, const Piece& piece) {
  if (manifest_.format_version == 1) return check_entry(name, record, piece);
  std::vector<std::byte> scratch;
  for (const Chunk& chunk : piece.chunks) read_chunk(name, record, chunk, scratch);
  for (const Patch& patch : piece.patches) {
    // What load() checked and remembered is not enough here: verify reads all.
    patch_spans_.erase(&patch);  // so that all are read
    rows_in(name, piece, patch, 0, 0);
    for (const Chunk& chunk : patch.values) read_chunk(name, record, chunk, scratch);
  }
}

std::vector<Shards::PatchRows> Shards::rows_in(const std::string& name, const Piece& piece,
                                               const Patch& patch, int64_t begin, int64_t end) {
  const auto known = patch_spans_.find(&patch);
  std::vector<std::pair<int64_t, int64_t>> spans;
  std::vector<PatchRows> result;
  std::vector<std::byte> scratch;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < patch.rows.size(); ++i) {
    const auto is_outside = [&](const std::pair<int64_t, int64_t>& span) {
      return span.second < begin || span.first >= end;
    };
    // Ranges of rows are known after the first time, so a block of a large table reads only its own
    // chunks.
    if (known != patch_spans_.end() && is_outside(known->second[i])) continue;
    const Chunk& chunk = patch.rows[i];
    const auto bytes = read_chunk(name, kRowNumberBytes, chunk, scratch);
    // It is one number, and the next chunk is compared with it.
    // The last row of the chunk before stays, so that they ascend over all chunks.
    rows.erase(rows.begin(), rows.empty() ? rows.begin() : rows.end() - 1);
    const size_t num_before = rows.size();
    if (const std::string error = take_rows(bytes, piece.box, rows); !error.empty())
      fail(folder_ / manifest_.files[chunk.file].name, "a patch of ", in_quotes(name), ": ", error,
           ": use another checkpoint");
    const std::vector<int64_t> own(rows.begin() + static_cast<std::ptrdiff_t>(num_before),
                                   rows.end());
    spans.emplace_back(own.front(), own.back());
    if (!is_outside(spans.back())) result.push_back({i, own});
  }
  // Only now: had the patch been damaged, all of it would be read again.
  if (known == patch_spans_.end()) patch_spans_.emplace(&patch, std::move(spans));
  return result;
}

void Shards::for_each(int64_t count, bool in_parallel,
                      const std::function<void(size_t i, std::vector<std::byte>& scratch)>& read) {
  const auto run = [&](int64_t first, int64_t end) {
    std::vector<std::byte> scratch;
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(end); ++i) read(i, scratch);
  };
  if (!in_parallel) return run(0, count);
  // One at a time: chunks have equal sizes, but reading them does not take equal time.
  at::parallel_for(0, count, 1, run);
}

void Shards::read_box(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                      const at::Tensor& target) {
  read_chunks(name, record, box, target);
  read_patches(name, record, box, target);
}

void Shards::read_patches(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                          const at::Tensor& target) {
  for (const Piece& piece : record.pieces) {
    const mesh::Box part = mesh::intersect(piece.box, box);
    if (piece.patches.empty() || part.numel() == 0) continue;
    for (const Patch& patch : piece.patches) {
      const auto wanted =
          rows_in(name, piece, patch, part.offset[0], part.offset[0] + part.size[0]);
      uint64_t num_bytes = 0;
      for (const auto& [chunk, rows] : wanted) {
        open(manifest_.files.at(patch.values[chunk].file).name);
        num_bytes += patch.values[chunk].num_bytes;
      }
      const bool in_parallel = target.is_cpu() && num_bytes >= kBytesForThreads;
      for_each(std::ssize(wanted), in_parallel, [&](size_t i, std::vector<std::byte>& scratch) {
        const auto& [chunk, rows] = wanted[i];
        const auto bytes = read_chunk(name, record, patch.values[chunk], scratch);
        place_rows({piece.box, record.dtype, rows, bytes}, box, target);
      });
    }
  }
}

void Shards::read_chunks(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                         const at::Tensor& target, const Skips& skips) {
  struct Wanted {
    const Piece& piece;
    const Chunk& chunk;
    uint64_t at;
  };
  std::vector<Wanted> wanted;
  uint64_t num_bytes = 0;
  for (const Piece& piece : record.pieces) {
    const mesh::Box part = mesh::intersect(piece.box, box);
    if (part.numel() == 0) continue;
    if (manifest_.format_version == 1) {
      // Version 1 has one checksum for the piece, so it is checked as a whole, once.
      if (!checked_entries_.contains(&piece)) check_entry(name, record, piece);
      checked_entries_.insert(&piece);
      const at::Tensor view = open(piece.file).view(name);
      const auto* const data = static_cast<const std::byte*>(view.const_data_ptr());
      place_bytes({piece.box, record.dtype, 0, {data, view.nbytes()}}, box, target);
      continue;
    }
    for_each_chunk(piece, part, record, [&](const Chunk& chunk, uint64_t at) {
      // Chunks that another rank of the host reads.
      if (skips && skips(chunk)) return;
      open(manifest_.files.at(chunk.file).name);
      wanted.push_back({piece, chunk, at});
      num_bytes += chunk.num_bytes;
    });
  }
  const bool in_parallel = target.is_cpu() && num_bytes >= kBytesForThreads;
  for_each(std::ssize(wanted), in_parallel, [&](size_t i, std::vector<std::byte>& scratch) {
    const auto& [piece, chunk, at] = wanted[i];
    const auto bytes = read_chunk(name, record, chunk, scratch);
    place_bytes({piece.box, record.dtype, at, bytes}, box, target);
  });
}

at::Tensor Shards::read(const std::string& name, const TensorRecord& record) {
  at::Tensor tensor = at::empty(record.shape, at::TensorOptions().dtype(record.dtype));
  read_box(name, record, {std::vector<int64_t>(record.shape.size(), 0), record.shape}, tensor);
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

}  // namespace trireme::checkpoint
