// Series for tests: rows whose values say of which step, rank and column they are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/metrics/rank_series.h"

namespace trireme::train {

inline SeriesShape shape_of_series(int64_t num_ranks = 2) {
  return {.num_ranks = num_ranks, .columns = {"step_seconds", "own_seconds", "tokens"}};
}

inline float value_at(int64_t step, int64_t rank, size_t column) {
  return static_cast<float>(step * 100 + rank * 10 + static_cast<int64_t>(column));
}

inline std::vector<float> row_at(int64_t step, const SeriesShape& shape) {
  std::vector<float> row;
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    for (size_t column = 0; column < shape.columns.size(); ++column) {
      row.push_back(value_at(step, rank, column));
    }
  }
  return row;
}

// What a reader has been given.
struct Collected {
  std::vector<SeriesBlock> blocks{};
  std::vector<WaitRecord> waits{};

  bool update(SeriesReader& reader) {
    const bool is_reset =
        reader.update([this](SeriesBlock block) { blocks.push_back(std::move(block)); },
                      [this](std::span<const WaitRecord> more) {
                        waits.insert(waits.end(), more.begin(), more.end());
                      });
    if (is_reset) *this = {};
    return is_reset;
  }
  std::vector<int64_t> steps(bool is_thinned = false) const {
    std::vector<int64_t> all;
    for (const SeriesBlock& block : blocks) {
      if (block.is_thinned == is_thinned) {
        all.insert(all.end(), block.steps.begin(), block.steps.end());
      }
    }
    return all;
  }
};

inline Collected read_series(const std::filesystem::path& run) {
  SeriesReader reader(run / kSeriesFolder);
  Collected found;
  found.update(reader);
  return found;
}

}  // namespace trireme::train
