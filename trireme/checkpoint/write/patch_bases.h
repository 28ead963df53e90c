// The pieces as this rank last stored them in each target. A later save of this process builds on
// them and stores only the rows that have changed since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/write/snapshot.h"

namespace trireme::checkpoint {

// The moment whose values a stored piece has.
struct ChangeMark {
  std::weak_ptr<const void> source{};  // see RowChanges
  int64_t mark = 0;
};
using ChangeMarks = std::map<std::string, ChangeMark>;  // by tensor

// Smaller pieces are stored whole: they are a chunk or less.
inline constexpr uint64_t kLeastPatchedBytes = kChunkBytes;

// Not thread safe.
class PatchBases {
 public:
  // This rank's part of a checkpoint.
  struct Base {
    int64_t save = -1;                              // its number in this process
    std::map<std::string, TensorRecord> tensors{};  // each with one piece
    std::vector<FileRecord> files{};                // that its chunks count
    ChangeMarks marks{};                            // of those that can be patched
  };

  // A number for the next save. All ranks count alike.
  int64_t next_save() { return next_save_++; }

  // The save with that number in `root`, if it was the last one there; null otherwise.
  const Base* find(const std::filesystem::path& root, int64_t save) const;
  void set(const std::filesystem::path& root, Base base) { bases_[root] = std::move(base); }

 private:
  int64_t next_save_ = 0;
  std::map<std::filesystem::path, Base> bases_;
};

// The checkpoint in one target on which a save may stand.
struct Footing {
  const PatchBases::Base* base = nullptr;  // null: none
  std::set<std::string> linked{};          // names of files that the new folder has
};

// The rows of the piece to store, indices in its box: those that have changed since the oldest of
// the footings. Nothing when it must be stored whole: at a target there is no such piece, or not
// all of its files, or it has too many patches, or with this one patches would have more than half
// of its bytes.
std::optional<std::vector<int64_t>> rows_to_patch(const OwnPiece& piece, const RowChanges& changes,
                                                  std::span<const Footing> footings);

// The piece as `base` has it, with the numbers of its files in `files`; nothing when one is not
// there.
std::optional<Piece> piece_on(const PatchBases::Base& base, const std::string& name,
                              std::span<const FileRecord> files);

}  // namespace trireme::checkpoint
