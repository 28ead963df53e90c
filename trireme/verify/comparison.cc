#include "trireme/verify/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/verify/precision.h"

namespace trireme::verify {
namespace {

using checkpoint::TensorDiff;
using checkpoint::TensorSource;

constexpr std::string_view kStatePrefix = "optimizer.";

// What a pair of sources differs by, by the names of tensors.
struct TensorDifference {
  Difference difference{};
  std::optional<checkpoint::ValueDiff::First> first{};
  std::string note{};
  bool is_judged = true;
};

struct SourceDifferences {
  std::map<std::string, TensorDifference> tensors{};
  int64_t num_compared = 0;
};

Difference difference_of(const checkpoint::ValueDiff& values) {
  if (values.num_not_finite > 0) {
    const double infinite = std::numeric_limits<double>::infinity();
    return {infinite, infinite};
  }
  return {values.max_absolute, values.max_relative};
}

SourceDifferences differences(const TensorSource& a, const TensorSource& b, at::ScalarType dtype) {
  const checkpoint::Diff diff = checkpoint::diff(a, b, {.wanted = [](const std::string& name) {
                                                   return !name.starts_with(train::kCallbackPrefix);
                                                 }});
  SourceDifferences found{.num_compared = diff.num_compared};
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::string& name : diff.only_in_a) {
    found.tensors[name] = {.difference = {infinite, infinite}, .note = "only A has it"};
  }
  for (const std::string& name : diff.only_in_b) {
    found.tensors[name] = {.difference = {infinite, infinite}, .note = "only B has it"};
  }
  for (const TensorDiff& tensor : diff.tensors) {
    TensorDifference& one = found.tensors[tensor.name];
    one.first = tensor.values.first;
    one.difference = difference_of(tensor.values);
    if (!tensor.same_form()) {
      one = {.difference = {infinite, infinite}, .note = "shape or dtype differs"};
    } else if (tensor.a.dtype != dtype) {
      one.is_judged = false;
      one.note = "kept in another precision than the run's";
    }
  }
  return found;
}

Difference between(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return {};
  const double infinite = std::numeric_limits<double>::infinity();
  if (!std::isfinite(a) || !std::isfinite(b)) return {infinite, infinite};
  const double off = std::abs(a - b);
  return {off, off / std::max(std::abs(a), std::abs(b))};
}

// Compares the probes one after the other.
class Comparing {
 public:
  Comparing(const RunPair& fp32, const RunPair& fp64) : fp32_(fp32), fp64_(fp64) {}

  void add_number(int64_t step, ProbeKind kind, const char* metric) {
    ++result_.num_probes;
    const auto of = [&](const RunPair& pair) {
      return between(pair.a.metric(step, metric), pair.b.metric(step, metric));
    };
    Probe probe{.step = step, .kind = kind, .fp32 = of(fp32_), .fp64 = of(fp64_)};
    probe.finding = judge(probe.fp32, probe.fp64);
    keep(std::move(probe));
  }

  void add_gradients(int64_t step) {
    const auto of = [&](const RunPair& pair, at::ScalarType dtype) {
      return differences(*pair.a.gradients(step), *pair.b.gradients(step), dtype);
    };
    // Backward makes the last parameter's gradient first.
    std::vector<std::string> order = fp64_.a.parameters();
    std::ranges::reverse(order);
    add_tensors(step, of(fp32_, at::kFloat), of(fp64_, at::kDouble), order,
                [](const std::string&) { return ProbeKind::kGradient; });
  }

  void add_checkpoint(int64_t step) {
    const auto of = [&](const RunPair& pair, at::ScalarType dtype) {
      return differences(*pair.a.checkpoint(step), *pair.b.checkpoint(step), dtype);
    };
    add_tensors(step, of(fp32_, at::kFloat), of(fp64_, at::kDouble), fp64_.a.parameters(),
                [](const std::string& name) {
                  return name.starts_with(kStatePrefix) ? ProbeKind::kState : ProbeKind::kWeight;
                });
  }

  Comparison finish(int64_t num_steps) && {
    result_.num_steps = num_steps;
    return std::move(result_);
  }

 private:
  // order: of the parameters whose tensors come first to last; those of a state are found by the
  // parameter's name in theirs
  void add_tensors(int64_t step, const SourceDifferences& low, const SourceDifferences& high,
                   std::span<const std::string> order,
                   const std::function<ProbeKind(const std::string&)>& kind_of) {
    result_.num_probes += high.num_compared;
    std::vector<Probe> probes;
    const auto add = [&](const std::string& name) {
      const auto lower = low.tensors.find(name), higher = high.tensors.find(name);
      Probe probe{.step = step, .kind = kind_of(name), .name = name};
      bool is_judged = true;
      for (const auto& [at, end, difference] :
           {std::tuple(lower, low.tensors.end(), &probe.fp32),
            std::tuple(higher, high.tensors.end(), &probe.fp64)}) {
        if (at == end) continue;
        *difference = at->second.difference;
        if (!at->second.note.empty()) probe.note = at->second.note;
        is_judged = is_judged && at->second.is_judged;
      }
      if (higher != high.tensors.end()) probe.first = higher->second.first;
      probe.finding = is_judged ? judge(probe.fp32, probe.fp64) : Finding::kUndecided;
      probes.push_back(std::move(probe));
    };
    for (const auto& [name, difference] : high.tensors) add(name);
    for (const auto& [name, difference] : low.tensors) {
      if (!high.tensors.contains(name)) add(name);
    }
    std::map<std::string_view, size_t> places;
    for (size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
    // A state is named after its parameter: "optimizer.momentum." and the parameter's own name.
    const auto place_of = [&](std::string_view name) {
      while (true) {
        const auto found = places.find(name);
        const size_t dot = name.find('.');
        if (found != places.end()) return found->second;
        if (dot == name.npos) return order.size();
        name.remove_prefix(dot + 1);
      }
    };
    std::ranges::stable_sort(probes, {}, [&](const Probe& probe) {
      return std::pair(probe.kind, place_of(probe.name));
    });
    for (Probe& probe : probes) keep(std::move(probe));
  }

  void keep(Probe probe) {
    if (probe.finding == Finding::kSame) return;
    if (probe.finding == Finding::kRounding) {
      result_.largest_fp64 = std::max(result_.largest_fp64, probe.fp64.relative);
    }
    result_.probes.push_back(std::move(probe));
  }

  const RunPair& fp32_;
  const RunPair& fp64_;
  Comparison result_;
};

}  // namespace

Finding Comparison::finding() const {
  Finding found = Finding::kSame;
  for (const Probe& probe : probes) found = std::max(found, probe.finding);
  return found;
}

const Probe* Comparison::first() const {
  const Finding wanted = finding();
  const auto found = std::ranges::find(probes, wanted, &Probe::finding);
  return found == probes.end() ? nullptr : &*found;
}

Comparison compare(const RunPair& fp32, const RunPair& fp64,
                   const std::function<void(int64_t, int64_t)>& on_progress) {
  const int64_t num_steps =
      std::min({fp32.a.num_steps(), fp32.b.num_steps(), fp64.a.num_steps(), fp64.b.num_steps()});
  Comparing comparing(fp32, fp64);
  for (int64_t step = 1; step <= num_steps; ++step) {
    if (on_progress) on_progress(step - 1, num_steps);
    comparing.add_number(step, ProbeKind::kLoss, "loss");
    comparing.add_gradients(step);
    comparing.add_number(step, ProbeKind::kNorm, "grad_norm");
    comparing.add_checkpoint(step);
  }
  return std::move(comparing).finish(num_steps);
}

}  // namespace trireme::verify
