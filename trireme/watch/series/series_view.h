// Follows RUN/series, the numbers of every rank, and keeps them for the page. The only unit that
// knows the file's reader.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/watch/series/rank_blocks.h"
#include "trireme/watch/series/wait_totals.h"

namespace trireme::watch {

// Not thread safe. Never writes, and throws nothing after its constructor.
class SeriesView {
 public:
  explicit SeriesView(const std::filesystem::path& run_folder);
  ~SeriesView();

  // Returns whether there is more at once.
  bool update();
  // While a long file is read for the first time, its newest steps only.
  const RankBlocks& ranks() const { return newest_ ? *newest_ : ranks_; }
  const WaitTotals& waits() const { return waits_; }

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
  RankBlocks ranks_;
  std::optional<RankBlocks> newest_;  // until ranks_ has them
  WaitTotals waits_;
};

}  // namespace trireme::watch
