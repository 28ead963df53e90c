#include "trireme/plan/shard/memory_price.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr double kGoodGap = 1e-3;  // of the seconds: no more prices are tried

class PriceSearch {
 public:
  PriceSearch(const ShardProblem& problem, double memory_bytes)
      : problem_(problem), memory_(memory_bytes) {}

  PricedChoices run() {
    const std::vector<int> free = minimise_at(0);
    if (memory_ <= 0 || problem_.kept_bytes(free) <= memory_) return result();
    std::vector<int> small = find_small(free);
    double low = 0, high = price_;
    std::vector<int> large = free;
    constexpr int kPrices = 14;
    for (int i = 0; i < kPrices && !is_good(); ++i) {
      mix(large, small);
      const double price = low == 0 ? high / 4 : (low + high) / 2;
      const std::vector<int> choices = minimise_at(price);
      if (problem_.kept_bytes(choices) <= memory_) {
        high = price;
        small = choices;
      } else {
        low = price;
        large = choices;
      }
    }
    mix(large, small);
    return result();
  }

 private:
  std::vector<int> minimise_at(double price) {
    const MinSumResult found = minimise(problem_.min_sum(price));
    bound_ = std::max(bound_, found.bound - price * memory_);
    consider(found.choices);
    price_ = price;
    return found.choices;
  }

  // Choices that fit, at a price that is high enough.
  std::vector<int> find_small(const std::vector<int>& free) {
    constexpr double kGiB = 1 << 30;
    TRIREME_CHECK(problem_.least_bytes() <= memory_, "states and activations take at least ",
                  format("%.3g", problem_.least_bytes() / kGiB),
                  " GiB of a rank at any split, and the bound is ", format("%.3g", memory_ / kGiB),
                  " GiB; use more devices, a smaller batch, or another bound");
    double price = problem_.seconds(free) / problem_.kept_bytes(free);
    while (true) {
      const std::vector<int> choices = minimise_at(price);
      if (problem_.kept_bytes(choices) <= memory_ * (1 + 1e-12)) return choices;
      // In the end the price is all that counts.
      price *= 8;
      TRIREME_ASSERT(std::isfinite(price), "no price makes ", problem_.least_bytes(), " of ",
                     problem_.kept_bytes(choices), " bytes");
    }
  }

  void consider(const std::vector<int>& choices) {
    const double bytes = problem_.kept_bytes(choices), seconds = problem_.seconds(choices);
    if (memory_ > 0 && bytes > memory_) return;
    if (!best_.choices.empty() && seconds >= best_.seconds) return;
    best_ = {.choices = choices, .seconds = seconds, .kept_bytes = bytes};
  }
  bool is_good() const {
    return !best_.choices.empty() && best_.seconds - bound_ <= kGoodGap * best_.seconds;
  }

  // The modules up to some place take the large choices, those behind it the small ones, or the
  // other way about.
  void mix(const std::vector<int>& large, const std::vector<int>& small) {
    if (ranks_.empty()) rank_modules();
    for (const bool large_first : {true, false}) {
      int low = 0, high = num_modules_;  // `low` modules with large choices fit
      while (low + 1 < high) {
        const int middle = (low + high) / 2;
        std::vector<int> choices = small;
        for (size_t v = 0; v < choices.size(); ++v) {
          const bool is_large =
              large_first ? ranks_[v] < middle : ranks_[v] >= num_modules_ - middle;
          if (is_large) choices[v] = large[v];
        }
        consider(choices);
        (problem_.kept_bytes(choices) <= memory_ ? low : high) = middle;
      }
    }
  }

  // Of each variable the number of its module in the order of forward.
  void rank_modules() {
    const spmd::Graph& graph = problem_.graph();
    std::map<std::string, int> numbers;
    for (const spmd::GraphNode& node : graph.nodes)
      numbers.try_emplace(node.module, static_cast<int>(numbers.size()));
    for (int v = 0; v < problem_.num_variables(); ++v) {
      std::string module;
      if (v < problem_.num_parameters()) {
        module = graph.values[problem_.parameter(v)].name;
        const size_t dot = module.rfind('.');
        module = dot == std::string::npos ? "" : module.substr(0, dot);
      } else {
        module = graph.nodes[problem_.node(v)].module;
      }
      ranks_.push_back(numbers.try_emplace(module, static_cast<int>(numbers.size())).first->second);
    }
    num_modules_ = static_cast<int>(numbers.size());
  }

  PricedChoices result() {
    best_.bound_seconds = std::min(bound_, best_.seconds);
    return best_;
  }

  const ShardProblem& problem_;
  double memory_;
  double price_ = 0;
  double bound_ = 0;
  PricedChoices best_{};
  std::vector<int> ranks_{};
  int num_modules_ = 0;
};

}  // namespace

PricedChoices choose_within(const ShardProblem& problem, double memory_bytes) {
  return PriceSearch(problem, memory_bytes).run();
}

}  // namespace trireme::plan
