// The series of ranks that `trireme watch` reads and a resumed run writes again.
#include <cstring>
#include <span>

#include "tests/hostile/format.h"
#include "trireme/base/bounds.h"
#include "trireme/base/file/digest.h"
#include "trireme/train/metrics/rank_series.h"
#include "trireme/train/metrics/series_writer.h"

namespace trireme::hostile {
namespace {

std::string valid_block(Random& random, int64_t first_step) {
  if (random.one_in(4)) {
    return train::to_bytes(train::WaitBlock{
        {{first_step, "data", 1, 0, 0.5F}, {first_step + 1, "tensor", 0, 1, 0.25F}}});
  }
  train::SeriesBlock block{.shape = {.num_ranks = 2, .columns = {"step_seconds", "tokens"}},
                           .epoch = 1,
                           .is_thinned = random.one_in(3)};
  for (int64_t i = 0; i < 3; ++i) {
    block.steps.push_back(first_step + 16 * i);
    block.values.resize(block.values.size() + block.row_size(), 0.5F);
  }
  return train::to_bytes(block);
}

void put_number(std::string& bytes, size_t at, uint64_t value, size_t width) {
  std::memcpy(bytes.data() + at, &value, width);
}

// Makes a damaged block's checksums right, so that its content is read.
void repair_block(std::string& block) {
  constexpr size_t kHeader = train::kBlockHeaderBytes;
  if (block.size() < kHeader) return;
  const auto sum = [&](size_t at, size_t size) {
    return digest_of(std::as_bytes(std::span(block).subspan(at, size))).low;
  };
  std::memcpy(block.data(), "TRISERI1", 8);
  put_number(block, 16, block.size() - kHeader, 8);
  put_number(block, 24, sum(kHeader, block.size() - kHeader), 8);
  put_number(block, 12, 0, 4);
  put_number(block, 12, sum(0, kHeader), 4);
}

class Series : public Format {
 public:
  explicit Series(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "series"; }

  void write(Random& random) override {
    std::string text;
    for (int64_t i = 0; i < 4; ++i) {
      std::string block = valid_block(random, 1 + 64 * i);
      if (random.one_in(2)) {
        // Fields of the header and the counts behind it, or any byte.
        constexpr size_t kFields[] = {8, 16, 32, 40, 48, 56, 64, 68, 72};
        const size_t at = random.pick(kFields);
        random.one_in(2) ? put_edge(block, at, at < 48 && at > 8 ? 8 : 4, random)
                         : damage_bytes(block, random);
        if (!random.one_in(4)) repair_block(block);
      }
      text += block;
    }
    if (random.one_in(3)) damage_bytes(text, random);
    last_step_ = static_cast<int64_t>(random.below(300));
    std::filesystem::remove_all(folder_);
    put_file(folder_ / train::kSeriesFolder / train::kSeriesName, text);
  }

  void read() override {
    expect_refusal_or_sense([&] { follow(last_step_ + kMaxSteps); });
    expect_refusal_or_sense([&] {
      train::SeriesWriter writer({.run_folder = folder_, .last_step = last_step_});
      require(!writer.take_problem(), "a series that cannot be written again");
      writer.add(last_step_ + 1, {.num_ranks = 1, .columns = {"tokens"}}, std::vector<float>{1});
      writer.flush();
      follow(last_step_ + 1);
      require(newest_ == last_step_ + 1, "a new step that is not read back");
    });
  }

 private:
  void follow(int64_t last_step) {
    newest_ = 0;
    train::SeriesReader reader(folder_ / train::kSeriesFolder);
    const bool is_reset = reader.update(
        [&](const train::SeriesBlock& block) {
          require(
              block.values.size() == block.steps.size() * block.row_size() && block.row_size() > 0,
              "a block with another number of values");
          for (const int64_t step : block.steps) {
            require(step > newest_ && step <= last_step,
                    "a step that goes back, or is past the end");
            newest_ = step;
          }
        },
        [&](std::span<const train::WaitRecord> waits) {
          for (const train::WaitRecord& wait : waits) {
            require(wait.seconds >= 0 && wait.waiter >= 0 && wait.awaited >= 0, "a wait below 0");
            require(wait.step <= last_step, "a wait past the end");
          }
        });
    require(!is_reset, "a new reader that has read before");
  }

  std::filesystem::path folder_;
  int64_t last_step_ = 0;
  int64_t newest_ = 0;
};

}  // namespace

void add_series_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Series>(folder / "series"));
}

}  // namespace trireme::hostile
