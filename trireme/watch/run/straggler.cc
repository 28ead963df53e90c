#include "trireme/watch/run/straggler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/numbers.h"

namespace trireme::watch {
namespace {

double largest_of(const std::vector<float>& values) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, double{value});
  }
  return largest;
}

int64_t stage_of(const std::vector<int64_t>& stages, size_t rank) {
  return rank < stages.size() ? stages[rank] : 0;
}

// The median of the others of the rank's stage, or of all others.
std::optional<double> peer_median(const std::vector<float>& own, const std::vector<int64_t>& stages,
                                  size_t rank) {
  std::vector<double> peers, others;
  for (size_t each = 0; each < own.size(); ++each) {
    if (each == rank || !std::isfinite(own[each])) continue;
    others.push_back(own[each]);
    if (stage_of(stages, each) == stage_of(stages, rank)) peers.push_back(own[each]);
  }
  if (others.empty()) return std::nullopt;
  return median(peers.empty() ? others : peers);
}

}  // namespace

std::optional<WithoutRank> without_rank(const RankBlocks& ranks, const std::vector<int64_t>& stages,
                                        int64_t rank, int64_t to_step, size_t most_steps) {
  if (rank < 0 || rank >= ranks.num_ranks()) return std::nullopt;
  const auto place = static_cast<size_t>(rank);
  std::vector<double> measured, without;
  for (const int64_t step :
       ranks.steps_between(std::numeric_limits<int64_t>::min(), to_step, most_steps)) {
    const auto own = ranks.values_at("own_seconds", step);
    const auto whole = ranks.values_at("step_seconds", step);
    if (!own || !whole || own->step != step || whole->step != step || place >= own->values.size() ||
        !std::isfinite(own->values[place])) {
      continue;
    }
    const auto peers = peer_median(own->values, stages, place);
    const double step_seconds = largest_of(whole->values);
    if (!peers || !std::isfinite(step_seconds)) continue;
    std::vector<float> replaced = own->values;
    replaced[place] = std::min(replaced[place], static_cast<float>(*peers));
    const double saved = largest_of(own->values) - largest_of(replaced);
    measured.push_back(step_seconds);
    without.push_back(std::max(0.0, step_seconds - std::max(0.0, saved)));
  }
  if (measured.empty()) return std::nullopt;
  return WithoutRank{.step_seconds = median(measured),
                     .without = median(without),
                     .num_steps = static_cast<int64_t>(measured.size())};
}

std::optional<Straggler> find_straggler(const RankBlocks& ranks, const std::vector<int64_t>& stages,
                                        int64_t num_ranks, size_t most_steps) {
  constexpr double kFewestRatio = 1.2;
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<double>> ratios;  // of each rank
  for (const int64_t step : ranks.steps_between(0, kAny, most_steps)) {
    auto own = ranks.values_at("own_seconds", step);
    if (!own || own->step != step) continue;
    own->values.resize(std::min(own->values.size(), static_cast<size_t>(num_ranks)));
    const std::vector<double> medians = stage_medians(own->values, stages);
    ratios.resize(std::max(ratios.size(), own->values.size()));
    for (size_t rank = 0; rank < own->values.size(); ++rank) {
      const double ratio = own->values[rank] / medians[rank];
      if (std::isfinite(ratio)) ratios[rank].push_back(ratio);
    }
  }
  Straggler found;
  for (size_t rank = 0; rank < ratios.size(); ++rank) {
    const double ratio = ratios[rank].empty() ? 0 : median(std::move(ratios[rank]));
    if (ratio > found.ratio) found = {static_cast<int64_t>(rank), ratio};
  }
  return found.ratio >= kFewestRatio ? std::optional(found) : std::nullopt;
}

std::vector<double> stage_medians(const std::vector<float>& values,
                                  const std::vector<int64_t>& stages) {
  std::map<int64_t, std::vector<double>> by_stage;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (std::isfinite(values[rank])) by_stage[stage_of(stages, rank)].push_back(values[rank]);
  }
  std::map<int64_t, double> medians;
  for (auto& [stage, numbers] : by_stage) medians[stage] = median(std::move(numbers));
  std::vector<double> result;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const auto found = medians.find(stage_of(stages, rank));
    result.push_back(found == medians.end() ? std::numeric_limits<double>::quiet_NaN()
                                            : found->second);
  }
  return result;
}

}  // namespace trireme::watch
