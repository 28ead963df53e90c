#include "trireme/cli/verify/comparison_json.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

using nlohmann::json;
using verify::Probe;

// JSON has no infinity.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

// Of both kinds of probes.
template <typename Type>
json place_of(const Type& probe) {
  json object = {{"step", probe.step},
                 {"kind", name_of(verify::kProbeKinds, probe.kind)},
                 {"name", printable(probe.name)}};
  if (probe.learner) object["learner"] = *probe.learner;
  return object;
}

json json_of(const Probe& probe, bool is_proved) {
  json object = place_of(probe);
  object.update({{"finding", name_of(verify::kFindings, probe.finding)},
                 {is_proved ? "fp32_relative" : "relative", number(probe.found.relative)},
                 {is_proved ? "fp64_relative" : "bound_relative", number(probe.scale.relative)},
                 {is_proved ? "fp32_absolute" : "absolute", number(probe.found.absolute)},
                 {is_proved ? "fp64_absolute" : "bound_absolute", number(probe.scale.absolute)}});
  if (!probe.note.empty()) object["note"] = probe.note;
  if (probe.first) {
    object["first"] = {{"index", probe.first->index}, {"a", probe.first->a}, {"b", probe.first->b}};
  }
  return object;
}

}  // namespace

json to_json(const verify::Comparison& comparison) {
  json probes = json::array(), same = json::array(), left_out = json::array();
  for (const Probe& probe : comparison.probes) {
    probes.push_back(json_of(probe, comparison.is_proved));
  }
  for (const verify::SameProbe& probe : comparison.same) {
    same.push_back(place_of(probe));
  }
  for (const std::string& name : comparison.left_out) left_out.push_back(printable(name));
  json object = {{"finding", name_of(verify::kFindings, comparison.finding())},
                 {"proved", comparison.is_proved},
                 {"steps", comparison.num_steps},
                 {"compared", comparison.num_probes},
                 {comparison.is_proved ? "largest_rounding_fp64" : "largest_rounding",
                  number(comparison.largest_rounding)},
                 {"probes", std::move(probes)},
                 {"same", std::move(same)},
                 {"left_out", std::move(left_out)}};
  const Probe* const first = comparison.first();
  if (first != nullptr) object["first"] = json_of(*first, comparison.is_proved);
  return object;
}

}  // namespace trireme::cli
