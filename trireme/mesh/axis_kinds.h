// The axes along which a run may arrange its ranks, and what the ranks along each have in common.
#pragma once

#include <string_view>
#include <vector>

namespace trireme::mesh {

// What ranks that differ on one axis compute on.
enum class Tokens {
  kOtherSamples,
  kOtherParts,  // of the same samples
  kSame,
};
// What they hold of the model.
enum class Weights {
  kSame,
  kParts,  // other parts of the weights that the axis cuts, and the same of all others
  kOther,
};
struct AxisKind {
  std::string_view name;     // in configs parallel.<name>
  std::string_view divides;  // for people: "layers"
  Tokens tokens;
  Weights weights;
  bool shares_states = false;  // ZeRO divides the states of a weight among its ranks
  bool is_folded = false;      // lies within axes with other tokens, so it adds no ranks
};
// The axes that a mesh may have, outermost first. Neighbours on the last are neighbours in world
// rank. What a run does along an axis follows from this table wherever it can: groups of gradients
// and norms, the sums of losses, checks of replicas, refused combinations.
inline constexpr AxisKind kAxisKinds[] = {
    {"pipeline", "layers", Tokens::kSame, Weights::kOther},
    {"data", "samples", Tokens::kOtherSamples, Weights::kSame},
    {"shard", "samples", Tokens::kOtherSamples, Weights::kSame, /*shares_states=*/true},
    {"context", "sequences", Tokens::kOtherParts, Weights::kSame, /*shares_states=*/true},
    {"expert", "experts", Tokens::kOtherSamples, Weights::kParts, /*shares_states=*/false,
     /*is_folded=*/true},
    {"tensor", "matrices", Tokens::kSame, Weights::kParts},
};

// Throws: ConfigError on an unknown name
const AxisKind& kind_of(std::string_view axis);

// The names of the kinds for which `is_wanted`, outermost first.
template <typename IsWanted>
std::vector<std::string_view> axes_where(const IsWanted& is_wanted) {
  std::vector<std::string_view> names;
  for (const AxisKind& kind : kAxisKinds) {
    if (is_wanted(kind)) names.push_back(kind.name);
  }
  return names;
}

}  // namespace trireme::mesh
