#include "trireme/watch/series/series_view.h"

#include <span>
#include <utility>

#include "trireme/train/metrics/rank_series.h"

namespace trireme::watch {
namespace {

// Read at once, so that the newest steps of a long run can be shown.
constexpr uint64_t kNewestBytes = uint64_t{16} << 20;

RankBlock to_rank_block(train::SeriesBlock block) {
  return {.num_ranks = block.shape.num_ranks,
          .columns = std::move(block.shape.columns),
          .steps = std::move(block.steps),
          .num_planes = block.is_thinned ? size_t{3} : size_t{1},
          .values = std::move(block.values)};
}

}  // namespace

class SeriesView::Reader : public train::SeriesReader {
 public:
  using train::SeriesReader::SeriesReader;
};

SeriesView::SeriesView(const std::filesystem::path& run_folder)
    : reader_(std::make_unique<Reader>(run_folder / train::kSeriesFolder)) {}
SeriesView::~SeriesView() = default;

bool SeriesView::update() {
  const auto take_block = [this](train::SeriesBlock block) {
    ranks_.add(to_rank_block(std::move(block)));
  };
  const auto take_waits = [this](std::span<const train::WaitRecord> records) {
    for (const train::WaitRecord& record : records)
      waits_.add(record.step, record.axis, record.waiter, record.awaited, record.seconds);
  };
  const bool has_none = ranks_.num_ranks() == 0 && !newest_;
  const bool begins_again = reader_->update(take_block, take_waits);
  if (begins_again) {  // with the next update()
    newest_.reset();
    ranks_.clear();
    waits_.clear();
    return true;
  }
  if (!reader_->has_more()) {
    newest_.reset();
  } else if (has_none) {
    newest_.emplace();
    reader_->read_newest(kNewestBytes, [this](train::SeriesBlock block) {
      newest_->add(to_rank_block(std::move(block)));
    });
  }
  return reader_->has_more();
}

}  // namespace trireme::watch
