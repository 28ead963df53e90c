#include "trireme/checkpoint/write/shard_writer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/io/async_io.h"
#include "trireme/checkpoint/chunk/data_file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {

// A rank's file is written from front to back in one pass. Each chunk is looked up by its digest,
// in the linked files and among those that this file has already, and is stored only if it is
// nowhere. What a linked checkpoint says of a chunk is believed only when this process has written
// it; otherwise the bytes are read and compared first, since a link to damaged bytes would be saved
// as whole. The header needs all ranges and the digest of the bytes, which are known last. So its
// room is kept free at the front, computed with the longest numbers that can stand there, and it is
// written at the end.

namespace {

constexpr const char* kChunksSuffix = "@chunks";
constexpr const char* kDigestKey = "digest";

// Pieces that come a chunk at a time do so to keep little in memory: so does the file.
size_t buffer_bytes_for(std::span<const OwnPiece* const> pieces) {
  return std::ranges::all_of(pieces, &OwnPiece::comes_by_rows) ? kChunkBytes
                                                               : DataFile::kBufferBytes;
}

// Compares chunks of linked files with what their checkpoint says of them, each once.
class LinkedFiles {
 public:
  LinkedFiles(const std::filesystem::path& folder, const SharedFiles& shared)
      : are_whole_(shared.are_whole),
        manifest_{.files = shared.files},
        shards_(folder, manifest_) {}

  bool has_whole(const Chunk& chunk) {
    if (are_whole_.at(chunk.file)) return true;
    const auto [known, is_new] = known_.try_emplace({chunk.file, chunk.begin}, false);
    // A tensor's chunk may be asked for twice: once to reserve room, once to write.
    if (is_new) known->second = shards_.has_whole(chunk);
    return known->second;
  }

 private:
  std::vector<bool> are_whole_;
  Manifest manifest_;
  Shards shards_;
  std::map<std::pair<size_t, uint64_t>, bool> known_;  // by file and begin
};

// Larger elements first, so that every tensor is aligned.
std::vector<const OwnPiece*> in_file_order(std::span<const OwnPiece* const> pieces) {
  std::vector<const OwnPiece*> order(pieces.begin(), pieces.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const OwnPiece* piece) { return c10::elementSize(piece->dtype); });
  return order;
}

class ShardWriter {
 public:
  ShardWriter(const std::filesystem::path& path, std::span<const OwnPiece* const> pieces,
              const SharedFiles& shared, const ShardOptions& options)
      : path_(path),
        stored_(shared.chunks),
        bases_(shared.bases),
        linked_(path.parent_path(), shared),
        options_(options),
        own_file_(shared.files.size()) {
    for (const OwnPiece* piece : pieces) names_.insert(piece->name);
    written_.files = shared.files;
    const uint64_t num_new = new_bytes(pieces);
    // All is stored: no file is made.
    if (num_new == 0) return;
    head_bytes_ = head_bytes_for(pieces);
    // What compression leaves is not known before.
    const bool knows_size = options.compression == Compression::kNone;
    file_.emplace(path, head_bytes_, knows_size ? std::optional(num_new) : std::nullopt,
                  buffer_bytes_for(pieces));
  }

  void write(const OwnPiece& piece) {
    // Chunks of this piece that are stored by others lie before or elsewhere.
    const uint64_t begin = file_ ? end_ : 0;
    Piece stored{.box = piece.box};
    if (piece.rows) {
      stored = bases_.at(piece.name);
      // A piece whose rows have not changed is taken over as it is.
      if (!piece.rows->empty()) stored.patches.push_back(place_rows(piece));
    } else {
      piece.read_chunks([&](size_t i, std::span<const std::byte> bytes) {
        stored.chunks.push_back(place(piece, i, bytes));
      });
    }
    // Nothing of it is in this file.
    if (file_ && end_ > begin) add_entry(piece, stored.chunks, begin);
    TensorRecord record{.dtype = piece.dtype, .shape = piece.box.size};
    record.pieces.push_back(std::move(stored));
    written_.tensors.emplace(piece.name, std::move(record));
  }

  Manifest finish() {
    if (!file_) return std::move(written_);
    const std::string head =
        safetensors_header(entries_, {{"format", "pt"}, {kDigestKey, to_text(digest_of(digests_))}},
                           path_, head_bytes_);
    file_->finish(head, options_.fsync);
    written_.files.push_back({.name = path_.filename().string(),
                              .num_bytes = file_->num_bytes(),
                              .header_checksum = checksum(std::as_bytes(std::span(head)))});
    return std::move(written_);
  }

 private:
  // The chunk with these bytes that is stored already; null: none that is whole.
  const Chunk* find(const Digest& digest, uint64_t num_bytes, size_t bytes_per_element) {
    const Chunk* const found = stored_.find(digest, num_bytes, bytes_per_element);
    const bool is_usable =
        // Chunks of this file need no comparison: they have just been written.
        found != nullptr && (found->file == own_file_ || linked_.has_whole(*found));
    return is_usable ? found : nullptr;
  }

  // The bytes that will be written if none is compressed, at most.
  uint64_t new_bytes(std::span<const OwnPiece* const> pieces) {
    uint64_t total = 0;
    // An upper bound: pieces with the same bytes are counted twice.
    for (const OwnPiece* piece : pieces) {
      for (size_t i = 0; i < piece->chunk_bytes.size(); ++i) {
        const bool is_stored =
            // Digests are known only of pieces that were scanned.
            i < piece->digests.size() && find(piece->digests[i], piece->chunk_bytes[i],
                                              c10::elementSize(piece->dtype)) != nullptr;
        if (!is_stored) total += piece->chunk_bytes[i];
      }
      if (piece->rows) total += piece->rows->size() * kRowNumberBytes;
    }
    return total;
  }

  // Room for the header, whose numbers are known last.
  uint64_t head_bytes_for(std::span<const OwnPiece* const> pieces) const {
    // Digits of the largest number, so the real header is never longer.
    constexpr uint64_t kLongest = ~uint64_t{0};
    std::vector<TensorInfo> infos;
    for (const OwnPiece* piece : pieces) {
      infos.push_back({piece->name, piece->dtype, piece->box.size, kLongest, kLongest});
      infos.push_back(
          {chunks_name(piece->name), at::kByte, {std::int64_t{1} << 62}, kLongest, kLongest});
    }
    return safetensors_header(infos, {{"format", "pt"}, {kDigestKey, to_text(Digest())}}, path_,
                              kIoAlignment)
        .size();
  }

  // No tensor has this name.
  std::string chunks_name(const std::string& name) const {
    std::string result = name + kChunksSuffix;
    // A tensor may be called so; names are the user's.
    while (names_.contains(result)) result += '@';
    return result;
  }

  // The piece's chunk `i`.
  Chunk place(const OwnPiece& piece, size_t i, std::span<const std::byte> bytes) {
    return place(bytes, c10::elementSize(piece.dtype),
                 i < piece.digests.size() ? piece.digests[i] : digest_of(bytes));
  }

  // The rows of the piece.
  Patch place_rows(const OwnPiece& piece) {
    const uint64_t row_bytes = row_bytes_of(piece.box, c10::elementSize(piece.dtype));
    std::vector<int64_t> numbers = *piece.rows;
    // Numbers in the whole tensor: another layout must read them.
    for (int64_t& number : numbers) number += piece.box.offset[0];
    std::span<const int64_t> left = numbers;
    Patch patch;
    piece.read_chunks([&](size_t i, std::span<const std::byte> bytes) {
      const auto rows = std::as_bytes(left.first(piece.chunk_bytes[i] / row_bytes));
      left = left.subspan(piece.chunk_bytes[i] / row_bytes);
      patch.rows.push_back(place(rows, kRowNumberBytes, digest_of(rows)));
      patch.values.push_back(place(piece, i, bytes));
    });
    return patch;
  }

  // Where the chunk is stored, or stores it.
  Chunk place(std::span<const std::byte> bytes, size_t bytes_per_element, const Digest& digest) {
    if (const Chunk* found = find(digest, bytes.size(), bytes_per_element)) return *found;
    const uint64_t num_bytes = bytes.size();
    Encoded encoded;
    if (options_.compression == Compression::kZstd) encoded = compress(bytes, bytes_per_element);
    if (encoded.codec != Codec::kRaw) bytes = encoded.bytes;
    Chunk chunk{.file = own_file_,
                .begin = file_->append(bytes),
                .stored_bytes = bytes.size(),
                .num_bytes = num_bytes,
                .codec = encoded.codec,
                .digest = digest,
                .stored_checksum = encoded.codec == Codec::kRaw ? "" : checksum(bytes)};
    end_ = chunk.begin + chunk.stored_bytes;
    // By the stored bytes, so that two files with the same header have the same content.
    digests_.push_back(encoded.codec == Codec::kRaw ? digest : digest_of(bytes));
    stored_.add(chunk, bytes_per_element);
    return chunk;
  }

  // The file's entry for what `piece` has stored there from `begin` on.
  void add_entry(const OwnPiece& piece, std::span<const Chunk> chunks, uint64_t begin) {
    const auto is_own = [&](const Chunk& chunk) {
      return chunk.file == own_file_ && chunk.codec == Codec::kRaw && chunk.begin >= begin;
    };
    uint64_t num_bytes = 0;
    for (const uint64_t each : piece.chunk_bytes) num_bytes += each;
    // Only whole and raw is a tensor for other programs.
    if (!piece.rows && end_ - begin == num_bytes && std::ranges::all_of(chunks, is_own)) {
      entries_.push_back({piece.name, piece.dtype, piece.box.size, begin, end_});
    } else {
      entries_.push_back(
          {chunks_name(piece.name), at::kByte, {static_cast<int64_t>(end_ - begin)}, begin, end_});
    }
  }

  std::filesystem::path path_;
  ChunkIndex stored_;
  const std::map<std::string, Piece>& bases_;
  LinkedFiles linked_;
  ShardOptions options_;
  size_t own_file_;
  std::set<std::string> names_;
  uint64_t head_bytes_ = 0;
  uint64_t end_ = 0;              // of what was appended
  std::optional<DataFile> file_;  // none: all is stored
  std::vector<TensorInfo> entries_;
  // Digests of the stored bytes of each chunk. They are in the header, so the name under which
  // later checkpoints link the file identifies its contents.
  std::vector<Digest> digests_;
  Manifest written_;
};

}  // namespace

Manifest write_shard(const std::filesystem::path& path, std::span<const OwnPiece* const> pieces,
                     const SharedFiles& shared, const ShardOptions& options, const Peers& peers) {
  ShardWriter writer(path, pieces, shared, options);
  for (const OwnPiece* piece : in_file_order(pieces)) {
    peers.check();
    writer.write(*piece);
  }
  return writer.finish();
}

}  // namespace trireme::checkpoint
