// The blocks of RUN/series/ranks.trs (docs/design/series-format.md): steps of every rank, groups of
// steps, and waits. Turns them into bytes and back. Damaged bytes are refused, never guessed at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::train {

struct SeriesShape {
  int64_t num_ranks = 0;
  std::vector<std::string> columns{};
  bool operator==(const SeriesShape&) const = default;
};

struct SeriesBlock {
  SeriesShape shape{};
  int64_t epoch = 0;
  bool is_thinned = false;
  std::vector<int64_t> steps{};  // ascending; of a thinned block the first step of each group of 16
  // [steps, (3: min mean max if thinned, else 1), ranks, columns]; NaN = unknown
  std::vector<float> values{};

  // The number of values of a step.
  size_t row_size() const {
    return static_cast<size_t>(shape.num_ranks) * shape.columns.size() * (is_thinned ? 3 : 1);
  }
};

// Seconds that a rank waited for another since the record before.
struct WaitRecord {
  int64_t step = 0;
  std::string axis{};
  int32_t waiter = 0;
  int32_t awaited = 0;
  float seconds = 0;
  bool operator==(const WaitRecord&) const = default;
};
struct WaitBlock {
  std::vector<WaitRecord> records{};
};

inline constexpr int64_t kThinnedSteps = 16;  // groups are the steps 1 to 16, 17 to 32, ...
inline constexpr size_t kBlockSteps = 256;
inline constexpr size_t kMostColumns = 256;
inline constexpr size_t kMostColumnBytes = 64;         // of a name
inline constexpr size_t kMostWaits = 4096;             // of a block
inline constexpr size_t kMostRowBytes = 128 << 10;     // of a step: 1,024 ranks with 32 columns
inline constexpr size_t kMostValueBytes = 16 << 20;    // of a block's values
inline constexpr size_t kMostPayloadBytes = 17 << 20;  // with its steps and names
inline constexpr size_t kBlockHeaderBytes = 64;
using BlockHeader = std::array<std::byte, kBlockHeaderBytes>;

// The last step of the group that has `step`.
constexpr int64_t end_of_group(int64_t step) {
  return (step + kThinnedSteps - 1) / kThinnedSteps * kThinnedSteps;
}

// The block with its header. It keeps the limits above.
std::string to_bytes(const SeriesBlock& block);
std::string to_bytes(const WaitBlock& block);

struct ReadBlock {
  std::variant<SeriesBlock, WaitBlock> content;
  uint64_t num_bytes = 0;  // in the file
};

// Reads blocks from a file that may grow meanwhile. Not thread safe.
// Memory: one block
class BlockScanner {
 public:
  // file: must outlive it. offset: of a block
  BlockScanner(const InputFile& file, uint64_t offset) : file_(file), offset_(offset) {}

  // The next block that can be read. Skips damage. Empty at the end of what the file had when it
  // was opened, or at a block that is not all there.
  // Throws: Error when the file became shorter
  std::optional<ReadBlock> next();
  // Where next() goes on. In a file with nothing but whole blocks, its end.
  uint64_t offset() const { return offset_; }
  int64_t num_dropped() const { return num_dropped_; }  // damaged blocks, and stretches of damage

 private:
  bool find_block();

  const InputFile& file_;
  uint64_t offset_;
  int64_t num_dropped_ = 0;
};

}  // namespace trireme::train
