// Length: one class, the probes of a step in their order.
#include "trireme/verify/comparison.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/verify/learner_tensors.h"
#include "trireme/verify/tensor_differences.h"

namespace trireme::verify {
namespace {

// Runs that are compared to judge by, all in one precision.
struct RunPairs {
  std::vector<RunPair> pairs;
  std::optional<at::ScalarType> dtype;  // of what is judged; empty: all is
};

using Judge = Finding (*)(const Difference& found, const Difference& scale);

// Which tensors are compared, and what they are.
struct TensorGroup {
  std::function<SourceDifferences(const RunPair& pair, const DifferenceOptions& options)> compare;
  std::function<bool(const std::string& name)> wanted;
  std::function<ProbeKind(const std::string& name)> kind_of;
  std::vector<std::string> order;  // whose tensors come first to last
  std::string_view suffix{};       // behind the names of the order
};

bool is_choices(const std::string& name) { return name.ends_with(kChoicesEnd); }
bool is_gradient(const std::string& name) { return name.ends_with(kGradientEnd); }

// Compares the probes one after the other.
class Comparing {
 public:
  // scale_is_shown: a probe's first difference is that of `scale`
  Comparing(RunPairs found, RunPairs scale, Judge judge, bool scale_is_shown)
      : found_(std::move(found)),
        scale_(std::move(scale)),
        judge_(judge),
        scale_is_shown_(scale_is_shown) {}

  void add_number(int64_t step, ProbeKind kind, const char* metric) {
    ++result_.num_probes;
    // One number says little: those of perturbed runs bound each other too.
    const auto of = [&](const RunPairs& runs) {
      std::vector<double> numbers{runs.pairs.front().a.metric(step, metric)};
      for (const RunPair& pair : runs.pairs) numbers.push_back(pair.b.metric(step, metric));
      Difference largest;
      for (const double one : numbers) {
        for (const double other : numbers) {
          const Difference found = between(one, other);
          if (found.absolute > largest.absolute) largest = found;
        }
      }
      return largest;
    };
    Probe probe{.step = step, .kind = kind, .found = of(found_), .scale = of(scale_)};
    probe.finding = judge_(probe.found, probe.scale);
    keep(std::move(probe));
  }

  // Those that all runs have.
  void add_activations(int64_t step) {
    std::optional<RecordedActivations> first = activations(step);
    if (!first) return;
    const std::set<std::string> lacking = lacking_activations(step);
    for (const std::string& name : lacking) {
      if (std::ranges::find(result_.left_out, name) == result_.left_out.end())
        result_.left_out.push_back(name);
    }
    add_replicas(
        step, [step](const RecordedRun& run) { return run.activations(step)->replicas; },
        [](const std::string& name) {
          return is_gradient(name) ? ProbeKind::kActivationGradient : ProbeKind::kActivation;
        });
    add_tensors(step, {.compare = compare_activations(step),
                       .wanted =
                           [lacking](const std::string& name) {
                             return !is_gradient(name) && !lacking.contains(name);
                           },
                       .kind_of =
                           [](const std::string& name) {
                             return is_choices(name) ? ProbeKind::kChoices : ProbeKind::kActivation;
                           },
                       .order = first->order});
  }
  void add_activation_gradients(int64_t step) {
    std::optional<RecordedActivations> first = activations(step);
    if (!first) return;
    std::ranges::reverse(first->order);
    add_tensors(step, {.compare = compare_activations(step),
                       .wanted =
                           [lacking = lacking_activations(step)](const std::string& name) {
                             return is_gradient(name) && !lacking.contains(name);
                           },
                       .kind_of = [](const std::string&) { return ProbeKind::kActivationGradient; },
                       .order = first->order,
                       .suffix = kGradientEnd});
  }

  void add_gradients(int64_t step) {
    // Backward makes the last parameter's gradient first.
    std::vector<std::string> order = parameters();
    std::ranges::reverse(order);
    add_replicas(
        step, [step](const RecordedRun& run) { return run.gradient_replicas(step); },
        [](const std::string&) { return ProbeKind::kGradient; });
    add_tensors(step, {.compare =
                           [step](const RunPair& pair, const DifferenceOptions& options) {
                             return differences(*pair.a.gradients(step), *pair.b.gradients(step),
                                                options);
                           },
                       .wanted = [](const std::string&) { return true; },
                       .kind_of = [](const std::string&) { return ProbeKind::kGradient; },
                       .order = std::move(order)});
  }

  void add_checkpoint(int64_t step) {
    add_tensors(
        step,
        {.compare =
             [step](const RunPair& pair, const DifferenceOptions& options) {
               return differences(*pair.a.checkpoint(step), *pair.b.checkpoint(step), options);
             },
         .wanted =
             [](const std::string& name) { return !name.starts_with(train::kCallbackPrefix); },
         .kind_of =
             [](const std::string& name) {
               return is_state(name) ? ProbeKind::kState : ProbeKind::kWeight;
             },
         .order = parameters()});
  }

  int64_t num_steps() const {
    int64_t steps = found_.pairs.front().a.num_steps();
    for (const RunPairs* const runs : {&found_, &scale_}) {
      for (const RunPair& pair : runs->pairs)
        steps = std::min({steps, pair.a.num_steps(), pair.b.num_steps()});
    }
    return steps;
  }

  Comparison run(const OnCompared& on_progress) && {
    result_.num_steps = num_steps();
    const int64_t first = found_.pairs.front().a.first_step();
    for (int64_t step = first; step < first + result_.num_steps; ++step) {
      if (on_progress) on_progress(step - first, result_.num_steps);
      add_activations(step);
      add_number(step, ProbeKind::kLoss, "loss");
      add_activation_gradients(step);
      add_gradients(step);
      add_number(step, ProbeKind::kNorm, "grad_norm");
      add_checkpoint(step);
    }
    return std::move(result_);
  }

 private:
  const RecordedRun& believed() const { return scale_.pairs.front().a; }
  std::vector<std::string> parameters() const { return believed().parameters(); }

  // A's record, if all runs have one.
  std::optional<RecordedActivations> activations(int64_t step) const {
    for (const RunPairs* const runs : {&found_, &scale_}) {
      for (const RunPair& pair : runs->pairs) {
        if (!pair.a.activations(step) || !pair.b.activations(step)) return std::nullopt;
      }
    }
    return believed().activations(step);
  }

  // Those that the ranks of any run have not whole.
  std::set<std::string> lacking_activations(int64_t step) const {
    std::set<std::string> names;
    for (const RunPairs* const runs : {&found_, &scale_}) {
      for (const RunPair& pair : runs->pairs) {
        for (const RecordedRun* const run : {&pair.a, &pair.b}) {
          const std::optional<RecordedActivations> record = run->activations(step);
          names.insert(record->left_out.begin(), record->left_out.end());
        }
      }
    }
    return names;
  }

  static std::function<SourceDifferences(const RunPair&, const DifferenceOptions&)>
  compare_activations(int64_t step) {
    return [step](const RunPair& pair, const DifferenceOptions& options) {
      return differences(*pair.a.activations(step)->tensors, *pair.b.activations(step)->tensors,
                         options);
    };
  }

  using Replicas = std::map<std::string, ReplicaDifference>;

  // Of those that ranks of one side hold differently.
  void add_replicas(int64_t step, const std::function<Replicas(const RecordedRun&)>& of_run,
                    ProbeKind (*kind_of)(const std::string& name)) {
    replicas_.clear();  // of activations that were not compared
    for (const char* side : {"A", "B"}) {
      const auto of = [&](const RunPairs& runs) {
        const RunPair& pair = runs.pairs.front();
        return of_run(*side == 'A' ? pair.a : pair.b);
      };
      const Replicas found = of(found_), scale = of(scale_);
      std::set<std::string> names;
      for (const auto* const map : {&found, &scale}) {
        for (const auto& [name, difference] : *map) names.insert(name);
      }
      for (const std::string& name : names) {
        Probe probe{.step = step, .kind = kind_of(name), .name = name};
        std::set<int> ranks;
        for (const auto& [map, difference] :
             {std::pair(&found, &probe.found), std::pair(&scale, &probe.scale)}) {
          const auto one = map->find(name);
          if (one == map->end()) continue;
          *difference = {one->second.absolute, one->second.relative};
          ranks.insert(one->second.ranks.begin(), one->second.ranks.end());
        }
        probe.note = concat("ranks of ", side, " hold other values than the first:");
        for (const int rank : ranks) probe.note += concat(' ', rank);
        probe.finding = judge_(probe.found, probe.scale);
        replicas_.push_back(std::move(probe));
      }
    }
  }

  SourceDifferences largest(const RunPairs& runs, const TensorGroup& group) const {
    SourceDifferences found;
    for (const RunPair& pair : runs.pairs) {
      take_larger(found, group.compare(pair, {.dtype = runs.dtype, .wanted = group.wanted}));
    }
    return found;
  }

  // Experts that B would have chosen otherwise than A, whose choices it repeats. In the lower
  // precision these are ties; in fp64 a tie is as rare as equal numbers. Runs with roundoffs have
  // about as many ties as B.
  void judge_choices(Probe& probe, const TensorDifference& found,
                     const TensorDifference& scale) const {
    const bool are_ties =
        scale_is_shown_ ? scale.num_different == 0
                        : judge_by_bound({.absolute = static_cast<double>(found.num_different)},
                                         {.absolute = static_cast<double>(scale.num_different)}) <=
                              Finding::kRounding;
    const int64_t num = std::max(found.num_different, scale.num_different);
    probe.finding = are_ties ? Finding::kRounding : Finding::kUndecided;
    probe.note = concat(num, " of B's own choices are not A's, which were repeated",
                        are_ties ? ": ties" : "; not only ties");
    probe.found = probe.scale = {};
  }

  void add_tensors(int64_t step, const TensorGroup& group) {
    const SourceDifferences found = largest(found_, group), scale = largest(scale_, group);
    std::set<std::string> names;
    for (const SourceDifferences* const side : {&found, &scale}) {
      for (const auto& [name, difference] : side->tensors) names.insert(name);
    }
    std::vector<Probe> probes = take_replicas(group);
    for (const std::string& name : names) {
      probes.push_back(probe_of(step, name, group, found, scale));
    }
    if (!scale_is_shown_) widen_bounds(probes);
    for (const std::string& name : scale.same) {
      if (!names.contains(name)) result_.same.push_back({step, group.kind_of(name), name});
    }
    result_.num_probes += std::ssize(scale.same) + std::ssize(scale.tensors);
    sort(probes, group);
    for (Probe& probe : probes) keep(std::move(probe));
  }

  Probe probe_of(int64_t step, const std::string& name, const TensorGroup& group,
                 const SourceDifferences& found, const SourceDifferences& scale) const {
    const auto in = [&name](const SourceDifferences& side) {
      const auto place = side.tensors.find(name);
      return place == side.tensors.end() ? TensorDifference{} : place->second;
    };
    const TensorDifference low = in(found), high = in(scale);
    Probe probe{.step = step,
                .kind = group.kind_of(name),
                .name = name,
                .found = low.difference,
                .scale = high.difference,
                .note = high.note.empty() ? low.note : high.note,
                .first = scale_is_shown_ ? high.first : low.first};
    const bool is_judged = low.is_judged && high.is_judged;
    probe.finding = is_judged ? judge_(probe.found, probe.scale) : Finding::kUndecided;
    if (probe.kind == ProbeKind::kChoices) judge_choices(probe, low, high);
    return probe;
  }

  // Adam's first steps are signs of gradients, so that a roundoff changes a weight by a whole step
  // or not at all: weights, and states that are like them, have the largest of their bounds.
  void widen_bounds(std::vector<Probe>& probes) const {
    const auto is_wide = [](const Probe& probe) {
      return probe.kind == ProbeKind::kWeight ||
             (probe.kind == ProbeKind::kState && is_like_weight(probe.name));
    };
    double widest = 0;
    for (const Probe& probe : probes) {
      if (is_wide(probe)) widest = std::max(widest, probe.scale.absolute);
    }
    for (Probe& probe : probes) {
      if (!is_wide(probe)) continue;
      probe.scale.absolute = widest;
      probe.finding = judge_(probe.found, probe.scale);
    }
  }

  std::vector<Probe> take_replicas(const TensorGroup& group) {
    std::vector<Probe> taken;
    std::erase_if(replicas_, [&](Probe& probe) {
      const bool is_taken = group.wanted(probe.name);
      if (is_taken) taken.push_back(probe);
      return is_taken;
    });
    return taken;
  }

  static void sort(std::vector<Probe>& probes, const TensorGroup& group) {
    std::map<std::string, size_t, std::less<>> places;
    for (size_t i = 0; i < group.order.size(); ++i)
      places[concat(group.order[i], group.suffix)] = i;
    // A state is named after its parameter: "optimizer.momentum." and the parameter's own name.
    const auto place_of = [&](std::string_view name) {
      while (true) {
        const auto found = places.find(name);
        const size_t dot = name.find('.');
        if (found != places.end()) return found->second;
        if (dot == name.npos) return group.order.size();
        name.remove_prefix(dot + 1);
      }
    };
    std::ranges::stable_sort(probes, {}, [&](const Probe& probe) {
      return std::pair(probe.kind, place_of(probe.name));
    });
  }

  void keep(Probe probe) {
    if (probe.finding == Finding::kSame) {
      result_.same.push_back({probe.step, probe.kind, probe.name});
      return;
    }
    if (probe.finding == Finding::kRounding) {
      const Difference& shown = scale_is_shown_ ? probe.scale : probe.found;
      result_.largest_rounding = std::max(result_.largest_rounding, shown.relative);
    }
    result_.probes.push_back(std::move(probe));
  }

  RunPairs found_;
  RunPairs scale_;
  Judge judge_;
  bool scale_is_shown_;
  std::vector<Probe> replicas_;  // of the step, until their group comes
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

Comparison compare(const RunPair& fp32, const RunPair& fp64, const OnCompared& on_progress) {
  return Comparing({{fp32}, at::kFloat}, {{fp64}, at::kDouble}, judge, /*scale_is_shown=*/true)
      .run(on_progress);
}

Comparison compare_by_bound(const RunPair& runs, std::span<const RecordedRun* const> perturbed,
                            const OnCompared& on_progress) {
  RunPairs bounds;
  for (const RecordedRun* const run : perturbed) bounds.pairs.push_back({runs.a, *run});
  Comparison found =
      Comparing({{runs}, {}}, std::move(bounds), judge_by_bound, /*scale_is_shown=*/false)
          .run(on_progress);
  found.is_proved = false;
  return found;
}

}  // namespace trireme::verify
