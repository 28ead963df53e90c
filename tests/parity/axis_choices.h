// Each way to divide the work, by itself: the keys that ask for it, and its ranks.
#pragma once

#include <vector>

#include "tests/parity/layout_config.h"

namespace trireme::train {

struct AxisChoice {
  const char* name;
  std::vector<Override> overrides;
  int ranks;
};

inline const std::vector<AxisChoice>& axis_choices() {
  static const std::vector<AxisChoice> choices = {
      {"data", {{"parallel.data", "2"}}, 2},
      {"zero1", {{"parallel.zero", "1"}, {"parallel.data", "2"}}, 2},
      {"zero2", {{"parallel.zero", "2"}, {"parallel.data", "2"}}, 2},
      {"zero3", {{"parallel.zero", "3"}, {"parallel.data", "2"}}, 2},
      {"tensor", {{"parallel.tensor", "2"}}, 2},
      {"tensor3", {{"parallel.tensor", "3"}}, 3},
      {"sequence", {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}, 2},
      {"context ring", {{"parallel.context", "2"}}, 2},
      {"context all-to-all",
       {{"parallel.context", "2"}, {"parallel.context_form", "all-to-all"}},
       2},
      {"documents", {{"data.separate_documents", "true"}}, 1},
      {"gpipe", {{"parallel.pipeline", "2"}, {"parallel.schedule", "gpipe"}}, 2},
      {"1f1b", {{"parallel.pipeline", "3"}, {"parallel.schedule", "1f1b"}}, 3},
      {"interleaved", {{"parallel.pipeline", "2"}, {"parallel.schedule", "interleaved"}}, 2},
      {"zero-bubble", {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}}, 2},
      {"zero-bubble-v", {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble-v"}}, 2},
      {"breadth-first", {{"parallel.pipeline", "2"}, {"parallel.schedule", "breadth-first"}}, 2},
  };
  return choices;
}

// Pairs of axes, and the largest context axis.
inline const std::vector<AxisChoice>& axis_pairs() {
  static const std::vector<AxisChoice> pairs = {
      {"tensor, context", {{"parallel.tensor", "2"}, {"parallel.context", "2"}}, 4},
      {"tensor, pipeline", {{"parallel.tensor", "3"}, {"parallel.pipeline", "2"}}, 6},
      {"context all-to-all, pipeline",
       {{"parallel.context", "2"},
        {"parallel.context_form", "all-to-all"},
        {"parallel.pipeline", "2"}},
       4},
      {"zero3, sequence",
       {{"parallel.data", "2"},
        {"parallel.zero", "3"},
        {"parallel.tensor", "2"},
        {"parallel.sequence_parallel", "true"}},
       4},
      {"zero3, context", {{"parallel.context", "3"}, {"parallel.zero", "3"}}, 3},
      {"context of four", {{"parallel.context", "4"}}, 4},
  };
  return pairs;
}

}  // namespace trireme::train
