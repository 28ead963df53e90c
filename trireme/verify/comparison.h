// Compares two runs that should compute the same, probe after probe in the order in which a step
// makes them, so that the first that differs is the nearest to the cause. What a difference is
// judged by: the same two runs in fp64 (proved), or runs of A with a roundoff in each activation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/verify/precision.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::verify {

// In the order of a step.
enum class ProbeKind {
  kActivation,
  kChoices,
  kLoss,
  kActivationGradient,
  kGradient,
  kNorm,
  kState,
  kWeight
};
inline constexpr Choice<ProbeKind> kProbeKinds[] = {
    {"activation", ProbeKind::kActivation},
    {"experts chosen", ProbeKind::kChoices},
    {"loss", ProbeKind::kLoss},
    {"activation gradient", ProbeKind::kActivationGradient},
    {"gradient", ProbeKind::kGradient},
    {"gradient norm", ProbeKind::kNorm},
    {"optimizer state", ProbeKind::kState},
    {"weight", ProbeKind::kWeight}};

// What was compared. The two differences are those that judge() or judge_by_bound() gets.
struct Probe {
  int64_t step = 0;
  ProbeKind kind = ProbeKind::kLoss;
  std::string name{};  // of the activation, the parameter or the state; "" of numbers
  Difference found{};  // of A and B in fp32, or in the run's precision
  Difference scale{};  // of A and B in fp64, or of A and its perturbed runs
  Finding finding = Finding::kSame;
  std::string note{};            // "only in A", or why it was not judged
  std::optional<int> learner{};  // of a run that has several; unset: of all
  // Where and what A and B differ in first: in fp64, or in the run's precision.
  std::optional<checkpoint::ValueDiff::First> first{};
};

// A probe with equal bits.
struct SameProbe {
  int64_t step = 0;
  ProbeKind kind = ProbeKind::kLoss;
  std::string name{};
  std::optional<int> learner{};
};

struct Comparison {
  bool is_proved = true;                // false: by perturbed runs
  std::vector<Probe> probes{};          // those with any difference, in the order of the steps
  std::vector<SameProbe> same{};        // the others
  std::vector<std::string> left_out{};  // names of activations that no ranks have whole
  int64_t num_probes = 0;               // that were compared
  int64_t num_steps = 0;
  double largest_rounding = 0;  // relative difference of those that are rounding: in fp64, or in
                                // the run's precision

  Finding finding() const;
  // The first probe with the comparison's finding; null when all are the same.
  const Probe* first() const;
};

// The two runs, in one precision.
struct RunPair {
  const RecordedRun& a;
  const RecordedRun& b;
};

// Called with the steps that were compared, and their number.
using OnCompared = std::function<void(int64_t done, int64_t total)>;

// Of tensors that are kept in another dtype than the run's, such as optimizer states of 8 bits,
// equal bits are asked for, and a difference is undecided.
// Throws: CheckpointError when a record is damaged
Comparison compare(const RunPair& fp32, const RunPair& fp64, const OnCompared& on_progress = {});

// For what cannot run in fp64. A difference is rounding as far as those of A from `perturbed` go:
// A's own runs with a roundoff in each activation. Nothing is proved by it.
Comparison compare_by_bound(const RunPair& runs, std::span<const RecordedRun* const> perturbed,
                            const OnCompared& on_progress = {});

}  // namespace trireme::verify
