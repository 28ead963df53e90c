// Mistakes that a run can make on purpose, for `trireme verify` to find. Each stands for a public
// bug; docs/guide/verify.md tells how they are run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trireme/comm/communicator.h"

namespace trireme::mutations {

// When a call of a group is made: within a backward pass of autograd or not.
enum class Pass { kAny, kForward, kBackward };

// What becomes of a call of a group.
enum class GroupAction {
  kSkip,     // an all-reduce or reduce-scatter is left out: every rank goes on with its own values
  kScale,    // a send sends a multiple of what it should
  kRotate,   // a reduce-scatter gives every rank the block of the next
  kStale,    // an all-gather gives the other ranks' values of the step before
  kLoseRow,  // an all-gather leaves zeros in the last row of the last block
};

// Which calls of which groups. Every rank of a group makes them, so that none waits for another.
struct GroupRule {
  std::string_view group{};  // a part of its name
  comm::Collective::Kind kind{};
  Pass pass = Pass::kAny;
  GroupAction action = GroupAction::kSkip;
  int64_t elements = 0;  // of the tensor; 0: any number
  int64_t least = 0;     // as many or more
  // The call with this number among those that match in a backward pass, or else in a step; -1: all
  int64_t index = -1;
  bool only_down = false;  // messages to a rank below
  double factor = 1;       // of kScale
};

// What else can be wrong. `factor` and `pattern` belong to a Mutation.
enum class Mistake {
  kGroup,           // calls of groups, see GroupRule
  kGradient,        // the gradients of parameters are multiples
  kGradientRow,     // their first row is, on all ranks but the first
  kGradientHalf,    // their second half is zero
  kGradientAdded,   // those of the step before are added
  kUpdate,          // the updates of parameters are multiples
  kSwappedLayers,   // layer 1 begins with the weights of layer 0
  kReportedLoss,    // the loss that is reported is a multiple
  kReportedNorm,    // parameters count 1 + factor times in the norm that is reported
  kLoss,            // the loss is a multiple, and all gradients
  kLossGradient,    // all gradients are, and the loss is not
  kLossOffset,      // each token's loss has the logarithm of the tensor ranks added
  kLossSmoothing,   // labels are smoothed with this rank's part of the vocabulary
  kLabels,          // the label of the last token that this rank holds is that of the first
  kDetachedHead,    // the head gives its weight no gradient
  kKeyGradient,     // the gradient of attention's keys is a multiple
  kAuxiliaryScale,  // the router's own loss is a multiple
  kAuxiliaryLost,   // the router's own loss gives no gradient
};

struct Mutation {
  std::string_view name;
  std::string_view source;  // "Megatron-LM#1446"
  std::string_view what;    // one line
  // The layouts of B in which it can be, each with the ranks: "2 parallel.tensor=2 ...; 4 ...".
  std::string_view layouts;
  std::string_view common{};  // keys of A and B, separated by blanks
  // What is to be named first, as "kind:pattern", separated by ';'.
  std::string_view expected{};
  Mistake mistake = Mistake::kGroup;
  GroupRule rule{};
  std::string_view pattern{};  // of parameters
  double factor = 1;
};

// All of them, in the order of the table in the guide.
std::span<const Mutation> all_mutations();
// Null when there is none of that name.
const Mutation* find_mutation(std::string_view name);

}  // namespace trireme::mutations
