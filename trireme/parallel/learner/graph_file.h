// Communication graphs as text, so that users can write their own.
//
//   # a comment
//   learners 3
//   round
//   0 1 1/2      learner 1 receives from learner 0, with weight 1/2
//   1 0 0.5
//   round
//   ...
//
// A weight is a decimal number or a fraction of two whole numbers. Rounds repeat in order. What
// learners keep follows from the weights (learner_graph.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

inline constexpr int kMostGraphRounds = 1024;
inline constexpr int kMostGraphEdges = 1 << 20;  // in all rounds
inline constexpr uint64_t kMostGraphBytes = uint64_t{32} << 20;

// source: the text's origin, which messages begin with. It becomes the graph's name.
// Throws: ConfigError with the line, for anything else than the above, and as make_graph() and
//         check_connected() (graph_check.h)
LearnerGraph parse_graph(std::string_view text, const std::string& source);
// Throws: as parse_graph(); Error when the file cannot be read or exceeds kMostGraphBytes
LearnerGraph read_graph(const std::filesystem::path& path);

// What parse_graph() makes the same rounds from, bit for bit.
std::string to_text(const LearnerGraph& graph);

}  // namespace trireme::parallel
