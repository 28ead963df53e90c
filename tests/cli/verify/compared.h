// A comparison with a bug, rounding and equal bits.
#pragma once

#include <limits>

#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/verify/comparison.h"

namespace trireme::cli {

inline verify::Comparison compared() {
  verify::Comparison comparison;
  comparison.probes = {
      {.step = 1,
       .kind = verify::ProbeKind::kActivation,
       .name = "model.layers.0",
       .found = {1e-6, 1e-6},
       .scale = {1e-15, 2e-15},
       .finding = verify::Finding::kRounding},
      {.step = 1,
       .kind = verify::ProbeKind::kGradient,
       .name = "head.weight</script>",
       .found = {0.5, 0.25},
       .scale = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()},
       .finding = verify::Finding::kBug,
       .note = "only A has it",
       .first = checkpoint::ValueDiff::First{.index = {0, 3}, .a = "1.5", .b = "2"}}};
  comparison.same = {{1, verify::ProbeKind::kLoss, ""}};
  comparison.left_out = {"late"};
  comparison.num_probes = 3;
  comparison.num_steps = 1;
  comparison.largest_rounding = 2e-15;
  return comparison;
}

}  // namespace trireme::cli
