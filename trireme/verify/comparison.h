// Compares two runs that should compute the same, each of them recorded in fp32 and in fp64: probe
// after probe in the order in which a step makes them, so that the first that differs is the
// nearest to the cause.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/verify/precision.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::verify {

// In the order of a step.
enum class ProbeKind { kLoss, kGradient, kNorm, kState, kWeight };
inline constexpr Choice<ProbeKind> kProbeKinds[] = {{"loss", ProbeKind::kLoss},
                                                    {"gradient", ProbeKind::kGradient},
                                                    {"gradient norm", ProbeKind::kNorm},
                                                    {"optimizer state", ProbeKind::kState},
                                                    {"weight", ProbeKind::kWeight}};

// What was compared, once in each precision.
struct Probe {
  int64_t step = 0;
  ProbeKind kind = ProbeKind::kLoss;
  std::string name{};  // the parameter's, or the state's; "" of numbers
  Difference fp32{};
  Difference fp64{};
  Finding finding = Finding::kSame;
  std::string note{};  // "only in A", or why it was not judged
  // Where and what fp64 differs in first.
  std::optional<checkpoint::ValueDiff::First> first{};
};

struct Comparison {
  std::vector<Probe> probes{};  // those with any difference, in the order of the steps
  int64_t num_probes = 0;       // that were compared
  int64_t num_steps = 0;
  double largest_fp64 = 0;  // relative difference of those that are rounding

  Finding finding() const;
  // The first probe with the comparison's finding; null when all are the same.
  const Probe* first() const;
};

// The two runs, in one precision.
struct RunPair {
  const RecordedRun& a;
  const RecordedRun& b;
};

// Of tensors that are kept in another dtype than the run's, such as optimizer states of 8 bits,
// equal bits are asked for, and a difference is undecided.
// on_progress: called with the steps that were compared, and their number
// Throws: CheckpointError when a record is damaged
Comparison compare(const RunPair& fp32, const RunPair& fp64,
                   const std::function<void(int64_t done, int64_t total)>& on_progress = {});

}  // namespace trireme::verify
