// Length: the candidates, their order and their names follow from each other.
#include "trireme/plan/search/search.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "trireme/base/bounds.h"
#include "trireme/base/words.h"
#include "trireme/mesh/axis_kinds.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// All layouts within the rules are tried, so one must cost little: an estimate has a formula for
// the pipeline's bubble, and stages are divided once for each number of them. Only the best
// estimates are checked against the runtime's rules, which takes a check of the whole config, and
// simulated with the executor's schedules. At least twenty are simulated however few are shown,
// because the simulation's order is another one. Layouts that differ in their schedule count as
// one. If no layout uses all devices, products of axes tell the numbers that some layout may use;
// trying each number took minutes.

namespace {

// Beside the axes.
constexpr std::string_view kKeys[] = {"zero",      "shard",    "micro_batch",
                                      "recompute", "schedule", "stages_per_rank"};

struct Pipelining {
  const char* schedule;
  int64_t chunks;
};

// Longer pipelines and more stages have not been built; layouts of that kind are tried on demand.
constexpr int64_t kMostPipeline = 1024, kMostStages = 2048;

// Candidates that the runtime refuses, after which the search gives up: each costs a check of the
// whole config.
constexpr int64_t kMostIllegal = 2000;

// Schedules for a model of `layers` on `ranks`. Interleaved stages beyond 12 a rank send more than
// they save; those that divide the layers evenly are tried, and 2 and 4, which may be uneven.
std::vector<Pipelining> pipelinings(int64_t layers, int64_t ranks) {
  constexpr int64_t kMostChunks = 12;
  std::vector<Pipelining> all = {{"1f1b", 0}};
  if (ranks == 1) return all;
  all.push_back({"zero-bubble", 0});
  const int64_t most_stages = std::min(layers, kMostStages);
  for (int64_t chunks = 2; chunks <= kMostChunks && chunks * ranks <= most_stages; ++chunks) {
    const bool is_even = layers % (chunks * ranks) == 0;
    if (is_even || chunks == 2 || chunks == 4) all.push_back({"interleaved", chunks});
  }
  return all;
}

// Whether a key is left to the search, or has the value given.
class Fixed {
 public:
  explicit Fixed(const std::map<std::string, std::string>& values) : values_(values) {
    for (const auto& [key, value] : values) {
      const std::vector<std::string> names = candidate_keys();
      const std::string meant = did_you_mean(names, key);
      TRIREME_CHECK(std::ranges::count(names, key) > 0, "--fix ", shown(key),
                    " is not a key of the search", meant, meant.empty() ? "; it" : " It",
                    " can fix ", in_words(names));
    }
  }

  bool allows(const std::string& key, const std::string& value) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->second == value;
  }
  bool allows(const std::string& key, int64_t value) const {
    return allows(key, std::to_string(value));
  }
  bool has(const std::string& key) const { return values_.contains(key); }

  std::vector<int64_t> of(const std::string& key, std::vector<int64_t> candidates) const {
    std::erase_if(candidates, [&](int64_t value) { return !allows(key, value); });
    return candidates;
  }

 private:
  const std::map<std::string, std::string>& values_;
};

// Calls visit(work) for every combination that the model's and the cluster's sizes leave.
class Candidates {
 public:
  Candidates(const Workload& base, const Cluster& cluster, const SearchOptions& options)
      : base_(base), cluster_(cluster), fixed_(options.fixed), options_(options) {}

  void each(const std::function<void(const Workload&)>& visit) const {
    const int64_t all = cluster_.num_devices();
    const int64_t most = options_.most_devices > 0 ? std::min(options_.most_devices, all) : all;
    // Time wants every device that the batch can use; cost tries fewer too.
    std::vector<int64_t> counts = {most};
    if (options_.objective == Objective::kCost) {
      for (int64_t n = most / 2; n >= 1; n /= 2) counts.push_back(n);
    }
    for (const int64_t devices : counts) {
      if (each_axes(devices, visit)) continue;
      // No layout divides the batch over this many devices: use the largest number with one.
      const std::vector<bool> is_possible = possible_counts(devices);
      for (int64_t n = devices - 1; n >= 1; --n) {
        if (is_possible[static_cast<size_t>(n)] && each_axes(n, visit)) break;
      }
    }
  }

 private:
  int64_t most_pipeline() const {
    const int64_t layers = std::min(base_.model.layers, kMaxRanks);
    return fixed_.has("pipeline") ? layers : std::min(layers, kMostPipeline);
  }

  // For each number of devices up to `most` whether it is a product of axes that may be tried.
  std::vector<bool> possible_counts(int64_t most) const {
    std::vector<bool> is_possible(static_cast<size_t>(most + 1));
    const int64_t tensors =
        fixed_.has("tensor") ? most : std::min(cluster_.devices_per_node, base_.model.heads);
    const int64_t contexts = fixed_.has("context") ? most : base_.model.sequence_length / 4096;
    std::vector<int64_t> counts = divisors(base_.global_batch);
    const auto times = [&](const char* key, int64_t most_of_axis) {
      std::vector<bool> next(is_possible.size());
      for (const int64_t count : counts) {
        for (int64_t axis = 1; axis <= most_of_axis && count * axis <= most; ++axis) {
          if (fixed_.allows(key, axis)) next[static_cast<size_t>(count * axis)] = true;
        }
      }
      counts.clear();
      for (int64_t n = 1; n <= most; ++n) {
        if (next[static_cast<size_t>(n)]) counts.push_back(n);
      }
    };
    times("tensor", tensors);
    times("context", std::max<int64_t>(1, contexts));
    times("pipeline", most_pipeline());
    for (const int64_t count : counts) is_possible[static_cast<size_t>(count)] = true;
    return is_possible;
  }

  bool each_axes(int64_t devices, const std::function<void(const Workload&)>& visit) const {
    bool any = false;
    const model::ModelConfig& model = base_.model;
    for (const int64_t tensor : fixed_.of("tensor", divisors(devices))) {
      // Neighbours of a number that does not divide a node lie on two nodes now and then.
      const bool is_split = cluster_.nodes > 1 && cluster_.devices_per_node % tensor != 0;
      const bool is_wide = tensor > cluster_.devices_per_node || tensor > model.heads || is_split;
      if (is_wide && !fixed_.has("tensor")) continue;
      for (const int64_t pipeline : fixed_.of("pipeline", divisors(devices / tensor))) {
        if (pipeline > most_pipeline()) continue;
        for (const int64_t context : fixed_.of("context", divisors(devices / tensor / pipeline))) {
          const bool is_short = model.sequence_length / context < 4096;
          if (context > 1 && is_short && !fixed_.has("context")) continue;
          Workload work = base_;
          work.axes = {.data = devices / tensor / pipeline / context,
                       .tensor = tensor,
                       .pipeline = pipeline,
                       .context = context};
          if (!fixed_.allows("data", work.axes.data)) continue;
          if (base_.global_batch % work.axes.data != 0 || work.axes.data > kMaxRanks) continue;
          work.sequence_parallel = tensor > 1;
          any = each_expert(work, visit) || any;
        }
      }
    }
    return any;
  }

  bool each_expert(Workload& work, const std::function<void(const Workload&)>& visit) const {
    const int64_t others = work.axes.data * work.axes.context;
    bool any = false;
    for (const int64_t expert : fixed_.of("expert", divisors(others))) {
      if (expert > std::max<int64_t>(1, work.model.sparse.experts)) continue;
      work.axes.expert = expert;
      any = each_batch(work, visit) || any;
    }
    return any;
  }

  bool each_batch(Workload& work, const std::function<void(const Workload&)>& visit) const {
    const int64_t of_rank = base_.global_batch / work.axes.data;
    bool any = false;
    for (const int64_t micro : fixed_.of("micro_batch", divisors(of_rank))) {
      work.micro_batch = micro;
      if (work.smallest_batch % work.sequences_per_forward() != 0) continue;
      if (work.num_microbatches() > kMostMicrobatches) continue;
      for (const Pipelining& pipelining : pipelinings(work.model.layers, work.axes.pipeline)) {
        if (!fixed_.allows("schedule", pipelining.schedule)) continue;
        if (!fixed_.allows("stages_per_rank", pipelining.chunks)) continue;
        const bool is_interleaved = pipelining.chunks > 1;
        if (is_interleaved && (of_rank / micro) % work.axes.pipeline != 0) continue;
        work.schedule = pipelining.schedule;
        work.stages_per_rank = pipelining.chunks;
        each_memory(work, visit);
        any = true;
      }
    }
    return any;
  }

  void each_memory(Workload& work, const std::function<void(const Workload&)>& visit) const {
    for (int64_t zero = 0; zero <= 3; ++zero) {
      if (!fixed_.allows("zero", zero)) continue;
      const bool leaves = work.sizes.weight_offload_rate + work.sizes.gradient_offload_rate > 0;
      if (zero > 0 && work.axes.data * work.axes.context == 1 && !leaves) continue;
      work.zero = zero;
      hold_gradients(work);
      for (const int64_t shard : fixed_.of("shard", shards(work))) {
        work.axes.shard = shard;
        for (const auto& choice : model::kChosenRecomputes) {
          if (!fixed_.allows("recompute", std::string(choice.name))) continue;
          if (options_.must_recompute && choice.value == model::Recompute::kNone) continue;
          work.recompute_kind = choice.value;
          work.recompute = model::recompute_plan(choice.value, options_.recompute_modules);
          visit(work);
        }
      }
    }
  }

  // Numbers of data ranks that divide one copy of the states: all of them, and those of a node.
  std::vector<int64_t> shards(const Workload& work) const {
    if (work.zero == 0) return {1};
    if (fixed_.has("shard")) return divisors(work.axes.data);
    const int64_t of_node = cluster_.devices_per_node / (work.axes.tensor * work.axes.context);
    const bool fits = of_node > 1 && of_node < work.axes.data && work.axes.data % of_node == 0;
    return fits ? std::vector{work.axes.data, of_node} : std::vector{work.axes.data};
  }

  const Workload& base_;
  const Cluster& cluster_;
  Fixed fixed_;
  const SearchOptions& options_;
};

double score_of(const StepPrediction& step, Objective objective) {
  switch (objective) {
    case Objective::kTime: return step.step_seconds();
    case Objective::kCost: return step.step_seconds() * static_cast<double>(step.num_devices);
    case Objective::kMemory: return step.memory.total();
  }
  return 0;
}

struct Scored {
  Workload work{};
  double score = 0;
  double bytes = 0;
};

// The stages of candidates. They do not depend on how the memory is divided, and few numbers of
// stages are tried.
class StageLayouts {
 public:
  const StageLayout& of(const Workload& work) {
    const auto [known, is_new] =
        known_.try_emplace({work.axes.pipeline, work.schedule, work.stages_per_rank});
    if (is_new) known->second = stage_layout(work);
    return known->second;
  }

 private:
  std::map<std::tuple<int64_t, std::string, int64_t>, StageLayout> known_;
};

// A key that is equal for candidates which differ only in their schedule.
std::string all_but_schedule(const Workload& work) {
  Workload plain = work;
  plain.schedule = "";
  plain.stages_per_rank = 0;
  return describe(plain);
}

// The fastest of the candidates that do not fit, and the one that needs least.
struct TooLarge {
  std::optional<Scored> fastest{};
  std::optional<Scored> smallest{};

  void add(const Scored& one) {
    if (!fastest || one.score < fastest->score) fastest = one;
    if (!smallest || one.bytes < smallest->bytes) smallest = one;
  }
};

// Keeps the first of those that differ in their schedule only.
void keep_distinct(std::vector<Plan>& plans) {
  std::set<std::string> seen;
  std::erase_if(plans,
                [&](const Plan& plan) { return !seen.insert(all_but_schedule(plan.work)).second; });
}

}  // namespace

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all, large;
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    all.push_back(i);
    if (i * i != n) large.push_back(n / i);
  }
  all.insert(all.end(), large.rbegin(), large.rend());
  return all;
}

std::vector<std::string> candidate_keys() {
  std::vector<std::string> keys;
  for (const AxisSize& each : kAxisSizes) keys.emplace_back(each.axis);
  keys.insert(keys.end(), std::begin(kKeys), std::end(kKeys));
  return keys;
}

namespace {

// Whether several groups of data ranks have a copy of the states each.
bool is_hybrid(const Workload& work) { return work.zero > 0 && work.axes.shard < work.axes.data; }

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_of(const Workload& work) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  std::vector<std::pair<std::string, std::string>> settings;
  for (const auto& [axis, size] : kAxisSizes) {
    settings.emplace_back(concat("parallel.", axis), text(work.axes.*size));
    if (axis == "tensor") {
      settings.emplace_back("parallel.sequence_parallel",
                            work.sequence_parallel ? "true" : "false");
    }
    if (axis == "pipeline") {
      settings.emplace_back("parallel.schedule", work.schedule);
      settings.emplace_back("parallel.stages_per_rank", text(work.stages_per_rank));
    }
  }
  settings.emplace_back("parallel.zero", text(work.zero));
  settings.emplace_back("parallel.shard", text(is_hybrid(work) ? work.axes.shard : 0));
  settings.emplace_back("train.micro_batch", text(work.micro_batch));
  settings.emplace_back("train.recompute", name_of(model::kRecomputes, work.recompute_kind));
  return settings;
}

std::string describe(const Workload& work) {
  std::string text = concat("data ", work.axes.data);
  for (const auto& [axis, size] : kAxisSizes) {
    if (axis == "data" || axis == "pipeline" || work.axes.*size == 1) continue;
    text += concat(" x ", axis, ' ', work.axes.*size,
                   mesh::kind_of(axis).is_folded ? " (of these)" : "");
  }
  if (work.axes.pipeline > 1) {
    text += concat(" x pipeline ", work.axes.pipeline, " (", work.schedule,
                   work.stages_per_rank > 1 ? concat(" of ", work.stages_per_rank) : "", ")");
  }
  const std::string over = is_hybrid(work) ? concat(" over ", work.axes.shard) : "";
  return concat(text, ", zero ", work.zero, over, ", microbatch ", work.micro_batch, ", recompute ",
                name_of(model::kRecomputes, work.recompute_kind));
}

SearchResult search(const Workload& base, const Cluster& cluster, const SearchOptions& options,
                    const Legality& legality) {
  const int64_t devices = options.most_devices > 0
                              ? std::min(options.most_devices, cluster.num_devices())
                              : cluster.num_devices();
  TRIREME_CHECK(devices <= kMostDevices, "the cluster has ", devices, " devices; expected at most ",
                kMostDevices, " to search; use --gpus-at-most");
  SearchResult result;
  const double limit = cluster.device.memory_bytes * options.memory_share;
  StageLayouts layouts;
  std::vector<Scored> fitting;
  TooLarge large;
  Candidates(base, cluster, options).each([&](const Workload& work) {
    ++result.num_candidates;
    const StepPrediction step = estimate_step(work, cluster, layouts.of(work));
    Scored scored{work, score_of(step, options.objective), step.memory.total()};
    if (step.memory.total() <= limit) {
      fitting.push_back(std::move(scored));
    } else {
      ++result.num_out_of_memory;
      large.add(scored);
    }
  });
  const auto predict = [&](const Scored& scored) {
    Plan plan{.work = scored.work, .layout = layouts.of(scored.work)};
    plan.step = predict_step(plan.work, cluster, plan.layout);
    return plan;
  };
  std::ranges::stable_sort(fitting, {}, &Scored::score);
  // Estimates leave the pipeline's bubble to a formula: simulate more than are wanted, and the
  // likeliest schedules of each.
  constexpr int kSchedules = 3;
  const size_t wanted = std::max<size_t>(20, 4 * options.num_best);
  std::map<std::string, int> num_schedules;
  for (const Scored& scored : fitting) {
    if (result.best.size() == wanted || result.num_illegal == kMostIllegal) break;
    int& tried = num_schedules[all_but_schedule(scored.work)];
    if (tried == kSchedules) continue;
    if (std::string refusal = legality(scored.work); !refusal.empty()) {
      if (++result.num_illegal == 1) result.refusal = std::move(refusal);
      continue;
    }
    ++tried;
    Plan plan = predict(scored);
    if (plan.step.memory.total() <= limit) result.best.push_back(std::move(plan));
  }
  std::ranges::stable_sort(
      result.best, {}, [&](const Plan& plan) { return score_of(plan.step, options.objective); });
  keep_distinct(result.best);
  if (result.best.size() > options.num_best) result.best.resize(options.num_best);
  if (!large.fastest) return result;
  if (fitting.empty() || large.fastest->score < fitting.front().score) {
    result.too_large.push_back(predict(*large.fastest));
  }
  if (fitting.empty()) result.too_large.push_back(predict(*large.smallest));
  return result;
}

}  // namespace trireme::plan
