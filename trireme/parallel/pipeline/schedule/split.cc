#include "trireme/parallel/pipeline/schedule/split.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// The split has two aims, in this order: the slowest stage is as fast as possible, and among such
// splits the times are as even as possible (the sum of squares). The first is a number, found by
// bisection in time near the number of layers, or by dynamic programming where memory limits the
// choice. The second is dynamic programming with that number as a bound. Trying every stage at
// every layer takes memory for their product: 65,536 layers once ended with bad_alloc. So narrow()
// first leaves out all places where a stage cannot begin, and the inner loop ends where a stage
// alone costs more than the best. Equal sums differ by roundoff, so every comparison has a margin;
// without it ties would be decided by noise.

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums that should be equal differ by roundoff.
constexpr double kSplitRoundoff = 1e-12;

// The range in which each stage may begin: `first` to `last`.
struct Window {
  int first = 0;
  int last = 0;
  size_t size() const { return static_cast<size_t>(last - first + 1); }
};

// Dynamic programming from the last stage to the first, within windows.
class Splitter {
 public:
  Splitter(std::span<const LayerCost> layers, const SplitOptions& options)
      : num_layers_(static_cast<int>(layers.size())), options_(options), sums_(layers.size() + 1) {
    for (size_t i = 0; i < layers.size(); ++i) {
      // Sums from the front give the cost of any run of layers at once.
      sums_[i + 1] = {sums_[i].time + layers[i].time, sums_[i].memory + layers[i].memory,
                      sums_[i].activations + layers[i].activations};
    }
    for (int stage = 0; stage < options.num_stages; ++stage) {
      windows_.push_back({stage, num_layers_ - options.num_stages + stage});
    }
  }

  double time(int begin, int end) const { return sums_[end].time - sums_[begin].time; }
  double memory(int stage, int begin, int end) const {
    const double held = options_.held_microbatches.empty() ? 0 : options_.held_microbatches[stage];
    return sums_[end].memory - sums_[begin].memory +
           held * (sums_[end].activations - sums_[begin].activations);
  }

  // The time of the slowest stage in the best split without a limit of memory. Bisection: a split
  // within a bound exists exactly if one does that gives each stage as many layers as it may have.
  double least_slowest() const {
    double low = 0, high = time(0, num_layers_);
    for (double bound = high / options_.num_stages; low < bound && bound < high;
         bound = low + (high - low) / 2) {
      const double found = slowest_of_longest(bound);
      // Takes the time that was found, so the search ends on one that a split has.
      (found <= bound ? high : low) = found <= bound ? found : bound;
      if (high <= low * (1 + kSplitRoundoff / 100)) break;
    }
    return high;
  }

  // Leaves out where no stage can begin if none takes longer than `slowest`.
  void narrow(double slowest) {
    const double bound = slowest * (1 + kSplitRoundoff);
    for (int stage = 0, begin = 0; stage < options_.num_stages; ++stage) {
      // Stages before it take as many layers as they may: later this one cannot begin.
      windows_[stage].last = std::min(begin, windows_[stage].last);
      begin = longest(windows_[stage].last, bound);
    }
    for (int stage = options_.num_stages - 1, end = num_layers_; stage >= 0; --stage) {
      const auto first = std::ranges::lower_bound(
          sums_.begin(), sums_.begin() + end, true, {},
          [&](const LayerCost& before) { return sums_[end].time - before.time <= bound; });
      windows_[stage].first =
          // Stages after it likewise: earlier it cannot begin.
          std::max(windows_[stage].first, static_cast<int>(first - sums_.begin()));
      end = windows_[stage].first;
    }
  }

  // The best split under `cost(stage, begin, end)`, which grows with `end`. `join` combines a
  // stage's cost with that of the stages after it, and is no less than either.
  template <typename StageCost, typename Join>
  double solve(const StageCost& cost, const Join& join) {
    check_size();
    const int last = options_.num_stages - 1;
    counts_.assign(options_.num_stages, {});
    std::vector<double> best, after;  // of this stage and the next one, by where they begin
    for (int stage = last; stage >= 0; --stage) {
      const Window window = windows_[stage];
      best.assign(window.size(), kNever);
      counts_[stage].assign(window.size(), 0);
      for (int begin = window.first; begin <= window.last; ++begin) {
        double& least = best[begin - window.first];
        const int first = stage == last ? num_layers_ : windows_[stage + 1].first,
                  end_of_all = stage == last ? num_layers_ : windows_[stage + 1].last;
        for (int end = std::max(begin + 1, first); end <= end_of_all; ++end) {
          const double own = cost(stage, begin, end);
          // Costs grow with `end`, so the rest is worse as well.
          if (own == kNever || own > least * (1 + kSplitRoundoff)) break;
          const double all = stage == last ? own : join(own, after[end - first]);
          // Prefers more layers here when that costs nothing.
          if (all == kNever || all > least * (1 + kSplitRoundoff)) continue;
          least = std::min(least, all);
          counts_[stage][begin - window.first] = end - begin;
        }
      }
      std::swap(best, after);
    }
    return after[0];
  }

  std::vector<int> counts() const {
    std::vector<int> counts;
    for (int stage = 0, begin = 0; stage < options_.num_stages; ++stage) {
      counts.push_back(counts_[stage][begin - windows_[stage].first]);
      begin += counts.back();
    }
    return counts;
  }

 private:
  // The end of the longest stage from `begin` on that takes no longer than `bound`.
  int longest(int begin, double bound) const {
    const auto end = std::ranges::upper_bound(
        sums_.begin() + begin, sums_.end(), false, {},
        [&](const LayerCost& until) { return until.time - sums_[begin].time > bound; });
    return static_cast<int>(end - sums_.begin()) - 1;
  }

  // The slowest stage of the split that gives each stage in turn as many layers as `bound` allows.
  // Above the bound if there is no such split.
  double slowest_of_longest(double bound) const {
    double slowest = 0;
    for (int stage = 0, begin = 0; stage < options_.num_stages; ++stage) {
      const int most = num_layers_ - (options_.num_stages - 1 - stage);
      const bool is_last = stage + 1 == options_.num_stages;
      const int end = is_last ? most : std::clamp(longest(begin, bound), begin + 1, most);
      slowest = std::max(slowest, time(begin, end));
      begin = end;
    }
    return slowest;
  }

  void check_size() const {
    // 2^27 counts are half a gigabyte.
    constexpr size_t kMost = size_t{1} << 27;
    size_t cells = 0;
    for (const Window& window : windows_) cells += window.size();
    TRIREME_CHECK(cells <= kMost, "a split of ", num_layers_, " layers into ", options_.num_stages,
                  " stages has ", cells, " places to weigh; expected at most ", kMost,
                  ". Use fewer stages, or give the layers of each stage");
  }

  int num_layers_;
  const SplitOptions& options_;
  std::vector<LayerCost> sums_;  // sums over the layers before each index
  std::vector<Window> windows_;
  std::vector<std::vector<int>> counts_;  // by stage and by where it begins
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

constexpr auto kLarger = [](double a, double b) { return std::max(a, b); };

void check_memory(Splitter& splitter, std::span<const LayerCost> layers,
                  const SplitOptions& options) {
  const double needed = splitter.solve(
      [&](int stage, int begin, int end) { return splitter.memory(stage, begin, end); }, kLarger);
  TRIREME_CHECK(needed <= options.memory_limit, "no split of ", layers.size(), " layers into ",
                options.num_stages, " stages fits ", static_cast<int64_t>(options.memory_limit),
                " bytes per stage; the best needs ", static_cast<int64_t>(needed), ": ",
                static_cast<int64_t>(needed - options.memory_limit),
                " more. Use more stages, smaller microbatches or recompute");
}

}  // namespace

std::vector<int> split_layers(std::span<const LayerCost> layers, const SplitOptions& options) {
  check(layers, options);
  Splitter splitter(layers, options);
  const bool has_limit = options.memory_limit < kNever;
  if (has_limit) check_memory(splitter, layers, options);
  const auto fits = [&](int stage, int begin, int end) {
    return !has_limit || splitter.memory(stage, begin, end) <= options.memory_limit;
  };
  const double slowest =
      has_limit ? splitter.solve(
                      [&](int stage, int begin, int end) {
                        return fits(stage, begin, end) ? splitter.time(begin, end) : kNever;
                      },
                      kLarger)
                : splitter.least_slowest();
  splitter.narrow(slowest);
  splitter.solve(
      [&](int stage, int begin, int end) {
        const double time = splitter.time(begin, end);
        // Squares: of two splits with the same slowest stage the more even one.
        return fits(stage, begin, end) && time <= slowest * (1 + kSplitRoundoff) ? time * time
                                                                                 : kNever;
      },
      std::plus<>());
  return splitter.counts();
}

std::vector<int64_t> places_in_stages(std::span<const LayerCost> layers, std::string_view schedule,
                                      int64_t num_ranks, int64_t stages_per_rank) {
  const int ranks = static_cast<int>(num_ranks);
  const ScheduleOptions options{.num_ranks = ranks,
                                .num_chunks = static_cast<int>(stages_per_rank)};
  const int stages = ranks == 1 ? 1 : ranks * num_chunks_of(schedule, options);
  std::vector<int64_t> places;
  for (const int count : split_layers(layers, {.num_stages = stages})) {
    for (int i = 0; i < count; ++i) places.push_back(i);
  }
  return places;
}

std::vector<int> rebalance(const std::vector<int>& counts, std::span<const double> stage_times,
                           double threshold, std::span<const LayerCost> memory,
                           const SplitOptions& options) {
  TRIREME_CHECK(counts.size() == stage_times.size() && !counts.empty(), "times of ",
                stage_times.size(), " stages; expected ", counts.size());
  std::vector<LayerCost> layers;
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    for (int i = 0; i < counts[stage]; ++i) {
      // Layers of a stage are taken as equal: only the stage was measured.
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
  // Moving layers costs a checkpoint and a load, so a small gain is none.
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
