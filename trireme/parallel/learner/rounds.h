// When learners exchange what: a pure function of the step's number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::parallel {

// Steps are numbered from 1. Every `every` steps each of `fragments` parts of the model is
// exchanged once, one after the other at equal distances. The exchange of a part begins at the end
// of a step and changes the weights `delay` steps later.
// Source: Douillard et al. 2025, arXiv:2501.18512 (Streaming DiLoCo), section 2
class Rounds {
 public:
  struct Options {
    int64_t every = 1;
    int64_t fragments = 1;
    int64_t delay = 0;
    int64_t begin = 0;  // no exchange before the end of this step
  };

  // Throws: ConfigError unless fragments divide every and delay < every / fragments
  explicit Rounds(const Options& options);

  // The fragment whose exchange begins at the end of this step.
  std::optional<int> beginning(int64_t step) const;
  // How often this fragment has been exchanged before. Only at a step at which one begins.
  int64_t number(int64_t step) const;
  // The fragment that begins there or in the steps before, and has not arrived by the end of
  // `step`, or arrives there: at most one is under way.
  std::optional<int> arriving(int64_t step) const;
  std::optional<int> under_way(int64_t step) const;
  // Whether a round ends there: every fragment has begun since the last one.
  bool ends(int64_t step) const;

 private:
  Options options_;
  int64_t stride_ = 1;
};

// The fragment of each of the model's parameters, given their sizes in the model's order: runs of
// neighbours of about equal size. The same on every rank and at every layout.
std::vector<int> fragments_of(std::span<const int64_t> sizes, int num_fragments);

}  // namespace trireme::parallel
