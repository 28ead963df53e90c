#include "trireme/tasks/language/expert_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/svg.h"
#include "trireme/model/experts/router.h"
#include "trireme/tasks/language/language.h"

namespace trireme::tasks {
namespace {

using model::ModelConfig;
using model::RoutingCounts;

double assignments_of(const RoutingCounts& counts) {
  return std::reduce(counts.assignments.begin(), counts.assignments.end());
}

// Calls use(layer, counts) for each sparse block.
template <typename Use>
void for_each_block(const ModelConfig& config, std::span<const double> table, const Use& use) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.sparse.is_sparse(layer)) continue;
    const int64_t block = config.sparse.sparse_before(layer);
    use(layer, model::routing_counts(model::row_of_block(table, block, config.sparse.experts)));
  }
}

std::vector<ExpertLoad> loads_of(const ModelConfig& config, std::span<const double> table) {
  std::vector<ExpertLoad> blocks;
  for_each_block(config, table, [&](int64_t layer, const RoutingCounts& counts) {
    const double sum = assignments_of(counts);
    ExpertLoad load{layer, {}};
    for (const double assignments : counts.assignments) {
      load.of_experts.push_back(
          sum == 0 ? 1 : assignments * static_cast<double>(counts.assignments.size()) / sum);
    }
    blocks.push_back(std::move(load));
  });
  return blocks;
}

// Suggests a key to change, given those that are set.
std::string advice(const ModelConfig& config) {
  if (config.sparse.router_bias_rate > 0) return "raise model.router_bias_rate";
  return config.sparse.balance_loss > 0
             ? "raise model.balance_loss, or set model.router_bias_rate, for example to 1e-3"
             : "set model.balance_loss, for example to 0.01, or model.router_bias_rate";
}

}  // namespace

bool ExpertReport::concerns(const train::RunConfig& config) const {
  // Learners are not in the same step.
  return config_.interval > 0 && language_of(config).model.sparse.experts > 0 &&
         config.parallel.learners == 1;
}

void ExpertReport::on_step(train::RunView& run) {
  const std::vector<double>& counts = run.metrics().counts;
  const ModelConfig& config = language_of(run.config()).model;
  const bool has_copies = run.config().parallel.expert_replicas > 0;
  if (window_.counts.empty()) {
    window_ = {.first = run.step() - 1, .counts = std::vector<double>(counts.size())};
  }
  std::ranges::transform(counts, window_.counts, window_.counts.begin(), std::plus());
  window_.last = run.step();
  if (window_.last - window_.first >= config_.window) {
    complete_ = std::exchange(window_, {});
    warn(run);
  }
  if (run.step() % config_.interval != 0) return;
  double worst = 0;
  for_each_block(config, counts, [&](int64_t layer, const RoutingCounts& of_block) {
    const auto add = [&](std::string_view name, double value) {
      run.add_metric(concat(name, "/", layer), value);
    };
    const double violation = of_block.max_violation();
    worst = std::max(worst, violation);
    add("expert_max_violation", violation);
    add("router_entropy", of_block.entropy / of_block.tokens);
    if (config.sparse.capacity_factor > 0) {
      add("dropped_share",
          of_block.dropped /
              (of_block.tokens * static_cast<double>(config.sparse.experts_per_token)));
    }
    if (config.sparse.balance_loss > 0)
      add("balance_loss", of_block.balance_loss / of_block.tokens);
    if (config.sparse.router_z_loss > 0) add("router_z_loss", of_block.z_loss / of_block.tokens);
    if (has_copies) {
      add("copied_share", of_block.copied / std::max(1.0, assignments_of(of_block)));
    }
    run.add_list(concat("expert_tokens/", layer),
                 {of_block.assignments.begin(), of_block.assignments.end()});
  });
  run.add_metric("expert_max_violation", worst);
}

// Warns about experts that starved in the last window but not in the one before.
void ExpertReport::warn(train::RunView& run) {
  const ModelConfig& config = language_of(run.config()).model;
  std::set<std::pair<int64_t, int64_t>> now;
  TextWriter found;
  int64_t num_new = 0;
  constexpr int64_t kMostNamed = 5;
  for (const ExpertLoad& block : loads_of(config, complete_.counts)) {
    for (int64_t e = 0; e < std::ssize(block.of_experts); ++e) {
      const double load = block.of_experts[static_cast<size_t>(e)];
      if (load >= config_.starving) continue;
      now.emplace(block.layer, e);
      if (starving_.contains({block.layer, e}) || ++num_new > kMostNamed) continue;
      found << (num_new == 1 ? "" : ", ") << "layer " << block.layer << " expert " << e << " ("
            << std::setprecision(2) << 100 * load << " % of an even share)";
    }
  }
  starving_ = std::move(now);
  if (num_new == 0) return;
  if (num_new > kMostNamed) found << " and " << num_new - kMostNamed << " more";
  run.tell(concat("starving experts in steps ", complete_.first + 1, " to ", complete_.last, ": ",
                  found.str(), "; ", advice(config)));
}

void ExpertReport::draw(train::RunView& run) const {
  const Window& shown = complete_.counts.empty() ? window_ : complete_;
  if (run.world().rank() != 0 || shown.counts.empty()) return;
  write_file_atomically(
      run.folder() / "experts.svg",
      draw_experts(loads_of(language_of(run.config()).model, shown.counts),
                   concat("Tokens of each expert, steps ", shown.first + 1, " to ", shown.last)));
}

void ExpertReport::on_checkpoint(train::RunView& run, const std::filesystem::path& /*checkpoint*/) {
  draw(run);
}

void ExpertReport::on_stop(train::RunView& run) { draw(run); }

std::unique_ptr<train::Callback> make_expert_report() { return std::make_unique<ExpertReport>(); }

namespace {

constexpr double kMargin = 16, kLabelWidth = 64, kTitleHeight = 28, kAxisHeight = 36;
constexpr double kRowHeight = 22, kLegendHeight = 44, kMapWidth = 640, kMinimumWidth = 3;
constexpr double kLargestColumn = 48;
constexpr double kExtreme = 4;  // that many times an even share, or a part of it, has full colour

// Orange and blue that colour-blind people can tell apart.
// Source: Okabe and Ito 2008, Color Universal Design
std::string color_of(double load) {
  using Rgb = std::array<double, 3>;
  constexpr Rgb kLess{230, 159, 0}, kMore{0, 114, 178};
  const double way = std::clamp(std::log2(std::max(load, 1e-9)) / std::log2(kExtreme), -1.0, 1.0);
  const Rgb& end = way < 0 ? kLess : kMore;
  std::array<int, 3> rgb{};
  for (size_t i = 0; i < 3; ++i) {
    rgb[i] = static_cast<int>(std::lround(255 + (end[i] - 255) * std::abs(way)));
  }
  return concat("rgb(", rgb[0], ",", rgb[1], ",", rgb[2], ")");
}

// Number of columns between two labels, so that they do not touch.
int64_t label_step(double column_width) {
  constexpr double kLabel = 28;
  int64_t step = 1;
  for (int64_t factor = 1; static_cast<double>(step) * column_width < kLabel; ++factor) {
    step = factor * 5;
  }
  return step;
}

void draw_legend(SvgFile& drawing, double x, double y) {
  constexpr int kSteps = 32;
  constexpr double kStep = 6;
  for (int i = 0; i <= kSteps; ++i) {
    const double load = std::pow(kExtreme, 2.0 * i / kSteps - 1);
    drawing.box(x + kStep * i, y, kStep, 12, color_of(load));
  }
  drawing.text(x, y + 26, "1/4");
  drawing.text(x + kStep * (kSteps + 1) / 2, y + 26, "even share", "middle");
  drawing.text(x + kStep * (kSteps + 1), y + 26, "4 x", "end");
}

}  // namespace

std::string draw_experts(const std::vector<ExpertLoad>& blocks, const std::string& title) {
  TRIREME_ASSERT(!blocks.empty() && !blocks.front().of_experts.empty(), "a map of no experts");
  const auto E = std::ssize(blocks.front().of_experts);
  const double column =
      std::clamp(kMapWidth / static_cast<double>(E), kMinimumWidth, kLargestColumn);
  const double left = kMargin + kLabelWidth, top = kMargin + kTitleHeight;
  SvgFile drawing;
  drawing.text(kMargin, kMargin + 14, title);
  double y = top;
  for (const ExpertLoad& block : blocks) {
    drawing.text(left - 8, y + kRowHeight - 7, concat("layer ", block.layer), "end");
    for (int64_t e = 0; e < E; ++e) {
      const double load = block.of_experts[static_cast<size_t>(e)];
      TextWriter words;
      words << "layer " << block.layer << ", expert " << e << ": " << std::setprecision(3) << load
            << " of an even share";
      drawing.box(left + column * static_cast<double>(e), y, column, kRowHeight, color_of(load),
                  words.str());
    }
    y += kRowHeight;
  }
  for (int64_t e = 0; e < E; e += label_step(column)) {
    drawing.text(left + column * (static_cast<double>(e) + 0.5), y + 16, std::to_string(e),
                 "middle");
  }
  drawing.text(left - 8, y + 16, "expert", "end");
  draw_legend(drawing, left, y + kAxisHeight);
  const double width = std::max(left + column * static_cast<double>(E), left + 360) + kMargin;
  return drawing.finish(width, y + kAxisHeight + kLegendHeight);
}

}  // namespace trireme::tasks
