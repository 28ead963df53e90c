#include "trireme/parallel/learner/rounds.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::parallel {

Rounds::Rounds(const Options& options) : options_(options) {
  TRIREME_CHECK(
      options.every >= 1 && options.fragments >= 1 && options.every % options.fragments == 0,
      "outer.every is ", options.every, " and outer.fragments ", options.fragments,
      "; each fragment is exchanged once in as many steps: set outer.every to a multiple "
      "of outer.fragments, such as ",
      std::max<int64_t>(1, options.every / std::max<int64_t>(1, options.fragments)) *
          options.fragments);
  stride_ = options.every / options.fragments;
  TRIREME_CHECK(options.delay >= 0 && options.delay < stride_, "outer.delay is ", options.delay,
                "; expected less than the ", stride_,
                " steps between two exchanges (outer.every / outer.fragments), because one "
                "must have arrived before the next begins");
  TRIREME_ASSERT(options.begin >= 0, "a first step of ", options.begin);
}

std::optional<int> Rounds::beginning(int64_t step) const {
  const int64_t since = step - options_.begin;
  if (since <= 0 || since % stride_ != 0) return std::nullopt;
  return static_cast<int>((since / stride_ - 1) % options_.fragments);
}

int64_t Rounds::number(int64_t step) const {
  return ((step - options_.begin) / stride_ - 1) / options_.fragments;
}

std::optional<int> Rounds::arriving(int64_t step) const { return beginning(step - options_.delay); }

std::optional<int> Rounds::under_way(int64_t step) const {
  for (int64_t begun = step; begun > step - options_.delay; --begun) {
    if (const auto fragment = beginning(begun)) return fragment;
  }
  return std::nullopt;
}

bool Rounds::ends(int64_t step) const {
  return beginning(step) == static_cast<int>(options_.fragments) - 1;
}

std::vector<int> fragments_of(std::span<const int64_t> sizes, int num_fragments) {
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<int> fragments;
  int64_t before = 0;
  for (const int64_t size : sizes) {
    // By the middle of the parameter, so that a large one goes where most of it lies.
    const long double middle =
        static_cast<long double>(before) + static_cast<long double>(size) / 2;
    const long double place = sum == 0 ? 0 : middle / static_cast<long double>(sum);
    fragments.push_back(std::min(static_cast<int>(place * num_fragments), num_fragments - 1));
    before += size;
  }
  return fragments;
}

}  // namespace trireme::parallel
