#include "trireme/parallel/pipeline/schedule/split.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums that should be equal differ by roundoff.
constexpr double kRoundoff = 1e-12;

// Dynamic programming from the last stage to the first.
class Splitter {
 public:
  Splitter(std::span<const LayerCost> layers, const SplitOptions& options)
      : num_layers_(static_cast<int>(layers.size())), options_(options), sums_(layers.size() + 1) {
    for (size_t i = 0; i < layers.size(); ++i) {
      sums_[i + 1] = {sums_[i].time + layers[i].time, sums_[i].memory + layers[i].memory,
                      sums_[i].activations + layers[i].activations};
    }
  }

  double time(int begin, int end) const { return sums_[end].time - sums_[begin].time; }
  double memory(int stage, int begin, int end) const {
    const double held = options_.held_microbatches.empty() ? 0 : options_.held_microbatches[stage];
    return sums_[end].memory - sums_[begin].memory +
           held * (sums_[end].activations - sums_[begin].activations);
  }

  // The best split under `cost`. `join` combines a stage's cost with that of the stages after it.
  using StageCost = std::function<double(int stage, int begin, int end)>;
  using Join = std::function<double(double, double)>;
  double solve(const StageCost& cost, const Join& join) {
    const int last = options_.num_stages - 1;
    best_.assign(options_.num_stages, std::vector<double>(num_layers_ + 1, kNever));
    count_.assign(options_.num_stages, std::vector<int>(num_layers_ + 1, 0));
    for (int stage = last; stage >= 0; --stage) {
      for (int begin = stage; begin < num_layers_; ++begin) {
        const int longest = num_layers_ - begin - (last - stage);
        for (int count = stage == last ? longest : 1; count <= longest; ++count) {
          const double own = cost(stage, begin, begin + count);
          const double all = stage == last ? own : join(own, best_[stage + 1][begin + count]);
          // Prefers more layers here when that costs nothing.
          if (all == kNever || all > best_[stage][begin] * (1 + kRoundoff)) continue;
          best_[stage][begin] = std::min(best_[stage][begin], all);
          count_[stage][begin] = count;
        }
      }
    }
    return best_[0][0];
  }

  std::vector<int> counts() const {
    std::vector<int> counts;
    for (int stage = 0, begin = 0; stage < options_.num_stages; ++stage) {
      counts.push_back(count_[stage][begin]);
      begin += counts.back();
    }
    return counts;
  }

 private:
  int num_layers_;
  const SplitOptions& options_;
  std::vector<LayerCost> sums_;  // sums over the layers before each index
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<int>> count_;
};

void check(std::span<const LayerCost> layers, const SplitOptions& options) {
  TRIREME_CHECK(options.num_stages >= 1, "a split into ", options.num_stages,
                " stages; expected at least 1");
  TRIREME_CHECK(std::ssize(layers) >= options.num_stages, "a split of ", layers.size(),
                " layers into ", options.num_stages,
                " stages; expected at least one layer per stage");
  TRIREME_CHECK(options.held_microbatches.empty() ||
                    std::ssize(options.held_microbatches) == options.num_stages,
                "held microbatches of ", options.held_microbatches.size(), " stages; expected ",
                options.num_stages);
  for (const LayerCost& layer : layers) {
    TRIREME_CHECK(layer.time >= 0 && layer.memory >= 0 && layer.activations >= 0,
                  "a layer of time ", layer.time, ", memory ", layer.memory, " and activations ",
                  layer.activations, "; expected none below 0");
  }
}

}  // namespace

std::vector<int> split_layers(std::span<const LayerCost> layers, const SplitOptions& options) {
  check(layers, options);
  const auto larger = [](double a, double b) { return std::max(a, b); };
  Splitter splitter(layers, options);
  const double needed = splitter.solve(
      [&](int stage, int begin, int end) { return splitter.memory(stage, begin, end); }, larger);
  TRIREME_CHECK(needed <= options.memory_limit, "no split of ", layers.size(), " layers into ",
                options.num_stages, " stages fits ", static_cast<int64_t>(options.memory_limit),
                " bytes per stage; the best needs ", static_cast<int64_t>(needed), ": ",
                static_cast<int64_t>(needed - options.memory_limit),
                " more. Use more stages, smaller microbatches or recompute");
  const auto fits = [&](int stage, int begin, int end) {
    return splitter.memory(stage, begin, end) <= options.memory_limit;
  };
  const double slowest = splitter.solve(
      [&](int stage, int begin, int end) {
        return fits(stage, begin, end) ? splitter.time(begin, end) : kNever;
      },
      larger);
  splitter.solve(
      [&](int stage, int begin, int end) {
        const double time = splitter.time(begin, end);
        return fits(stage, begin, end) && time <= slowest * (1 + kRoundoff) ? time * time : kNever;
      },
      std::plus<>());
  return splitter.counts();
}

std::vector<int> rebalance(const std::vector<int>& counts, std::span<const double> stage_times,
                           double threshold, std::span<const LayerCost> memory,
                           const SplitOptions& options) {
  TRIREME_CHECK(counts.size() == stage_times.size() && !counts.empty(), "times of ",
                stage_times.size(), " stages; expected ", counts.size());
  std::vector<LayerCost> layers;
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    for (int i = 0; i < counts[stage]; ++i) {
      layers.push_back(memory.empty() ? LayerCost{} : memory[layers.size()]);
      layers.back().time = stage_times[stage] / counts[stage];
    }
  }
  SplitOptions split = options;
  split.num_stages = static_cast<int>(counts.size());
  std::vector<int> better = split_layers(layers, split);
  double slowest = 0;
  for (size_t begin = 0; const int count : better) {
    double time = 0;
    for (size_t i = begin; i < begin + count; ++i) time += layers[i].time;
    slowest = std::max(slowest, time);
    begin += count;
  }
  const double before = *std::ranges::max_element(stage_times);
  return slowest < before * (1 - threshold) ? better : counts;
}

std::vector<int> split_by_hand(std::vector<int> counts, std::span<const LayerCost> layers,
                               const SplitOptions& options) {
  check(layers, options);
  TRIREME_CHECK(std::ssize(counts) == options.num_stages, "layer counts of ", counts.size(),
                " stages; expected one for each of ", options.num_stages);
  for (const int count : counts)
    TRIREME_CHECK(count >= 1, "a stage of ", count, " layers; expected at least 1");
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  TRIREME_CHECK(sum == std::ssize(layers), "stages of ", sum, " layers in all; the model has ",
                layers.size());
  const Splitter splitter(layers, options);
  for (int stage = 0, begin = 0; stage < options.num_stages; begin += counts[stage++]) {
    const double needed = splitter.memory(stage, begin, begin + counts[stage]);
    TRIREME_CHECK(needed <= options.memory_limit, "stage ", stage, " of ", counts[stage],
                  " layers needs ", static_cast<int64_t>(needed), " bytes; expected at most ",
                  static_cast<int64_t>(options.memory_limit), ". Give it fewer layers");
  }
  return counts;
}

}  // namespace trireme::parallel
