#include "trireme/checkpoint/write/patch_bases.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/write/chunk_index.h"

namespace trireme::checkpoint {
namespace {

// The mark of the piece at this footing; nothing when it cannot be patched there.
std::optional<int64_t> mark_at(const Footing& footing, const OwnPiece& piece,
                               const RowChanges& changes) {
  if (footing.base == nullptr) return std::nullopt;
  const auto found = footing.base->tensors.find(piece.name);
  const auto mark = footing.base->marks.find(piece.name);
  if (found == footing.base->tensors.end() || mark == footing.base->marks.end() ||
      // lock(): another table may have been made at the address of one that is gone.
      mark->second.source.lock() != changes.source || found->second.dtype != piece.dtype)
    return std::nullopt;
  const Piece& stored = found->second.pieces.at(0);
  // The bound on patches keeps a load from reading one row many times.
  if (stored.box != piece.box || stored.patches.size() >= kMaxPatches) return std::nullopt;
  bool has_all = true;
  for_all_chunks(stored, [&](const Chunk& chunk) {
    // A patch needs every file of what it stands on.
    has_all = has_all && footing.linked.contains(shared_name(footing.base->files.at(chunk.file)));
  });
  return has_all ? std::optional(mark->second.mark) : std::nullopt;
}

int64_t num_patched_rows(const Piece& piece) {
  int64_t total = 0;
  for (const Patch& patch : piece.patches) total += patch.num_rows();
  return total;
}

}  // namespace

const PatchBases::Base* PatchBases::find(const std::filesystem::path& root, int64_t save) const {
  const auto found = bases_.find(root);
  return found != bases_.end() && found->second.save == save ? &found->second : nullptr;
}

std::optional<std::vector<int64_t>> rows_to_patch(const OwnPiece& piece, const RowChanges& changes,
                                                  std::span<const Footing> footings) {
  const size_t width = c10::elementSize(piece.dtype);
  const uint64_t row_bytes = row_bytes_of(piece.box, width);
  const uint64_t num_bytes = static_cast<uint64_t>(piece.box.numel()) * width;
  if (!changes.source || (piece.offloaded && !piece.read_rows) || row_bytes == 0 ||
      row_bytes > kChunkBytes || num_bytes < kLeastPatchedBytes || footings.empty())
    return std::nullopt;
  // The oldest mark: rows that one target lacks are written to all.
  int64_t oldest = std::numeric_limits<int64_t>::max(), patched = 0;
  for (const Footing& footing : footings) {
    const auto mark = mark_at(footing, piece, changes);
    if (!mark) return std::nullopt;
    oldest = std::min(oldest, *mark);
    patched = std::max(patched, num_patched_rows(footing.base->tensors.at(piece.name).pieces[0]));
  }
  auto rows = changes.since(oldest);
  if (!rows) return std::nullopt;
  const uint64_t total = static_cast<uint64_t>(patched) + rows->size();
  // Above half, writing the box whole costs less than reading all its patches later.
  return total * (row_bytes + kRowNumberBytes) <= num_bytes / 2 ? std::move(rows) : std::nullopt;
}

std::optional<Piece> piece_on(const PatchBases::Base& base, const std::string& name,
                              std::span<const FileRecord> files) {
  Piece piece = base.tensors.at(name).pieces.at(0);
  bool has_all = true;
  for_all_chunks(piece, [&](Chunk& chunk) {
    // The same files have other numbers in this checkpoint.
    const auto found =
        std::ranges::find(files, shared_name(base.files.at(chunk.file)), &FileRecord::name);
    has_all = has_all && found != files.end();
    chunk.file = static_cast<size_t>(found - files.begin());
  });
  return has_all ? std::optional(std::move(piece)) : std::nullopt;
}

}  // namespace trireme::checkpoint
