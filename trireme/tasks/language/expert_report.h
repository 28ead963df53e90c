// Shows how a model uses its experts: metrics of each sparse block, a heat map in the run's folder,
// and a warning when an expert starves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::tasks {

struct ExpertReportConfig {
  TRIREME_KEYS_BEGIN(ExpertReportConfig)
  TRIREME_KEY(int64_t, interval, 1, kMayChange,
              "write metrics of each sparse block's experts every N steps; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, window, 100, kMayChange,
              "steps summed up in output.folder/experts.svg and in the check for starving experts",
              Range{1, kMaxSteps})
  TRIREME_KEY(double, starving, 0.1, kMayChange,
              "warn about an expert that gets less than this fraction of the mean number of tokens "
              "in a window; 0 = never",
              Range{.minimum = 0, .maximum = 1})
  TRIREME_KEYS_END()
};

class ExpertReport final : public train::Callback {
 public:
  static constexpr std::string_view kName = "experts";

  std::unique_ptr<Callback> clone() const override { return std::make_unique<ExpertReport>(*this); }
  void add_keys(train::Keys& keys) override { keys.add("experts", config_); }
  bool concerns(const train::RunConfig& config) const override;
  void on_step(train::RunView& run) override;
  void on_checkpoint(train::RunView& run, const std::filesystem::path& checkpoint) override;
  void on_stop(train::RunView& run) override;

 private:
  // Sums of the counts of the steps (first, last].
  struct Window {
    int64_t first = 0;
    int64_t last = 0;
    std::vector<double> counts{};
  };
  void warn(train::RunView& run);
  void draw(train::RunView& run) const;

  ExpertReportConfig config_;
  Window window_;                                   // under way
  Window complete_;                                 // the last whole one
  std::set<std::pair<int64_t, int64_t>> starving_;  // (layer, expert) pairs reported to the user
};

std::unique_ptr<train::Callback> make_expert_report();

// The use of a model's experts as a picture.

// One sparse block's row.
struct ExpertLoad {
  int64_t layer = 0;               // number in the whole model
  std::vector<double> of_experts;  // tokens over their mean, 1: an even share
};

// A heat map of blocks x experts as SVG. Orange: less than an even share, blue: more.
std::string draw_experts(const std::vector<ExpertLoad>& blocks, const std::string& title);

}  // namespace trireme::tasks
