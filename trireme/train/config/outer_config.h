// Section [outer] of a config: what learners exchange, and when.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/parallel/learner/wire/block_code.h"

namespace trireme::train {

// How learners change their common weights.
enum class OuterMethod { kAverage, kDiloco, kGossip, kPushSum, kGradientTracking, kD2, kDecoupled };
inline constexpr Choice<OuterMethod> kOuterMethods[] = {
    {"average", OuterMethod::kAverage},
    {"diloco", OuterMethod::kDiloco},
    {"gossip", OuterMethod::kGossip},
    {"push-sum", OuterMethod::kPushSum},
    {"gradient-tracking", OuterMethod::kGradientTracking},
    {"d2", OuterMethod::kD2},
    {"decoupled", OuterMethod::kDecoupled}};

enum class OuterOptimizer { kSgd, kNesterov };
inline constexpr Choice<OuterOptimizer> kOuterOptimizers[] = {
    {"sgd", OuterOptimizer::kSgd}, {"nesterov", OuterOptimizer::kNesterov}};

// What becomes of the learners' optimizer states in an exchange.
enum class OuterStates { kKeep, kAverage };
inline constexpr Choice<OuterStates> kOuterStates[] = {{"keep", OuterStates::kKeep},
                                                       {"average", OuterStates::kAverage}};

// The numbers in which differences are sent.
inline constexpr Choice<parallel::WireCode> kOuterWires[] = {
    {"fp32", parallel::WireCode::kFloat32},
    {"int8", parallel::WireCode::kInt8},
    {"int4", parallel::WireCode::kInt4},
    {"two-bit", parallel::WireCode::kTwoBits},
    {"sign", parallel::WireCode::kSign}};

struct OuterConfig {
  TRIREME_KEYS_BEGIN(OuterConfig)
  TRIREME_KEY(OuterMethod, method, OuterMethod::kDiloco, kMustStay,
              "how learners change their common weights; average = to the mean of their weights "
              "(local SGD), diloco = by an optimizer of its own, whose gradient is the mean of "
              "what they have changed; gossip = each to a mean with its neighbours in outer.graph; "
              "push-sum = the same on graphs where what a learner gives and what it gets differ; "
              "gradient-tracking and d2 = gossip for learners whose data differ; decoupled = as "
              "diloco, but a round waits for outer.quorum learners, on parameter servers or with "
              "outer.meeting",
              kOuterMethods)
  TRIREME_KEY(
      std::string, graph, "ring", kMustStay,
      "gossip, push-sum, gradient-tracking, d2: who exchanges with whom; complete, ring, torus, "
      "exponential, one-peer, base-K (at most K - 1 peers in a round, exact for any number of "
      "learners), "
      "host (all of a host, then base-2 between hosts), or a file")
  TRIREME_KEY(int64_t, every, 50, kMustStay, "steps between two exchanges of a weight",
              Range{1, kMaxSteps})
  TRIREME_KEY(int64_t, begin, 0, kMustStay,
              "step after which learners train apart; until then they sum their gradients in every "
              "step, as data-parallel ranks do (post-local SGD)",
              Range{0, kMaxSteps})
  TRIREME_KEY(OuterOptimizer, optimizer, OuterOptimizer::kNesterov, kMustStay,
              "diloco, decoupled: the optimizer of the common weights", kOuterOptimizers)
  TRIREME_KEY(double, learning_rate, 0.7, kMustStay, "diloco, decoupled: its learning rate",
              Range{.minimum = 0, .maximum = 10, .above_minimum = true})
  TRIREME_KEY(double, momentum, 0.9, kMustStay, "diloco, decoupled: its momentum",
              Range{.minimum = 0, .maximum = 1, .below_maximum = true})
  TRIREME_KEY(OuterStates, states, OuterStates::kKeep, kMustStay,
              "the states of each learner's own optimizer in an exchange; keep = each keeps its "
              "own, average = all go on with their mean",
              kOuterStates)
  TRIREME_KEY(int64_t, fragments, 1, kMustStay,
              "parts of the model that are exchanged one after the other, each once in outer.every "
              "steps; a divisor of outer.every",
              Range{1, 1024})
  TRIREME_KEY(int64_t, delay, 0, kMustStay,
              "steps for which an exchange goes on behind the training before it changes the "
              "weights; less than outer.every / outer.fragments",
              Range{0, kMaxSteps})
  TRIREME_KEY(double, mix, 1, kMustStay,
              "share of the common weights in a learner's weights after a delayed exchange; the "
              "rest are its own, with the steps it has made meanwhile",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(
      parallel::WireCode, wire, parallel::WireCode::kFloat32, kMustStay,
      "numbers in which learners send what they have changed; fp32 (fp64 runs: fp64), int8, "
      "int4 or two-bit = with a scale for each 256, sign = one bit. What they lose is added "
      "to the next message",
      kOuterWires)
  TRIREME_KEY(double, kept, 1, kMustStay,
              "share of the changes that are sent, those of largest magnitude; the others wait for "
              "the next message",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(
      std::string, meeting, "", kMayChange,
      "HOST:PORT of a `trireme meet` at which learners meet that come and go, each a run of "
      "its own; empty = the learners are ranks of this run")
  TRIREME_KEY(
      int64_t, place, 0, kMustStay,
      "outer.meeting: the number of this learner, from 0, whose share of each batch it reads",
      Range{0, kMaxRanks})
  TRIREME_KEY(int64_t, quorum, 0, kMustStay,
              "decoupled: learners whose differences end a round of a fragment; 0 = all",
              Range{0, kMaxRanks})
  TRIREME_KEY(double, grace_seconds, 0, kMustStay,
              "decoupled: how long a round waits for the other learners once it has its quorum",
              Range{0, kMaxSeconds})
  TRIREME_KEY(int64_t, staleness, -1, kMustStay,
              "decoupled: rounds that may end in a row without a learner, before the others wait "
              "for it; -1 = any number",
              Range{-1, 1e6})
  TRIREME_KEYS_END()

  // Whether the learners are runs of their own.
  bool meets() const { return !meeting.empty(); }
  // Whether learners have common weights, which each exchange changes.
  bool has_common() const {
    return method == OuterMethod::kAverage || method == OuterMethod::kDiloco ||
           method == OuterMethod::kDecoupled;
  }
  // Whether learners keep a correction of what they mix (parallel/learner/corrected_mixing.h).
  bool corrects() const {
    return method == OuterMethod::kGradientTracking || method == OuterMethod::kD2;
  }
  // Whether these change by an optimizer of their own.
  bool has_optimizer() const {
    return method == OuterMethod::kDiloco || method == OuterMethod::kDecoupled;
  }
  bool is_decoupled() const { return method == OuterMethod::kDecoupled; }
  bool operator==(const OuterConfig&) const = default;
};

}  // namespace trireme::train
