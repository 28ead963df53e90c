// The numbers of every rank and step that a run keeps in RUN/series/ranks.trs
// (docs/design/series-format.md), for readers that follow it: `trireme watch`. series_writer.h
// writes it. A reader changes nothing, and may read while the run writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "trireme/base/file/file.h"
#include "trireme/train/metrics/series_block.h"

namespace trireme::train {

inline constexpr const char* kSeriesFolder = "series";
inline constexpr const char* kSeriesName = "ranks.trs";

// Follows the file, whatever happens to it. Steps ascend over all blocks; what goes back is
// dropped. Not thread safe. Never throws after the constructor.
// Memory: one block, below kMostPayloadBytes twice
class SeriesReader {
 public:
  using OnBlock = std::function<void(SeriesBlock)>;
  using OnWaits = std::function<void(std::span<const WaitRecord>)>;

  // folder: RUN/series, which may not exist yet
  explicit SeriesReader(std::filesystem::path folder);

  // Hands over what has come since the last call, at most kMostReadAtOnce bytes of it. Returns true
  // when what was read before no longer counts, because the file was cut, thinned, replaced or
  // removed: the caller drops all that it has. This call hands nothing over then; the next ones
  // begin again.
  bool update(const OnBlock& on_block, const OnWaits& on_waits);

  // Hands over the blocks in the last `num_bytes` of the file, whatever update() has read of it.
  void read_newest(uint64_t num_bytes, const OnBlock& on_block) const;

  // Whether the last update() stopped before the end, so that another one has more at once.
  bool has_more() const { return has_more_; }
  // Damaged, unknown and repeated blocks since the file was begun.
  int64_t num_dropped() const { return num_dropped_; }

 private:
  bool forget();

  std::filesystem::path path_;
  std::optional<FileIdentity> identity_;  // of the file that was read
  uint64_t offset_ = 0;                   // read up to here
  int64_t last_step_ = 0;
  int64_t num_dropped_ = 0;
  bool has_more_ = false;
};

inline constexpr uint64_t kMostReadAtOnce = uint64_t{4} << 20;

}  // namespace trireme::train
