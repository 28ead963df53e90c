#include "trireme/plan/search/search.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/nearest_name.h"
#include "trireme/plan/cost/state_bytes.h"

namespace trireme::plan {
namespace {

constexpr std::string_view kKeys[] = {"data",     "tensor",         "pipeline",    "context",
                                      "expert",   "zero",           "micro_batch", "recompute",
                                      "schedule", "stages_per_rank"};

struct Pipelining {
  const char* schedule;
  int64_t chunks;
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  return all;
}

// Schedules for a model of `layers` on `ranks`. Interleaved stages beyond 12 a rank send more than
// they save; those that divide the layers evenly are tried, and 2 and 4, which may be uneven.
std::vector<Pipelining> pipelinings(int64_t layers, int64_t ranks) {
  constexpr int64_t kMostChunks = 12;
  std::vector<Pipelining> all = {{"1f1b", 0}};
  if (ranks == 1) return all;
  all.push_back({"zero-bubble", 0});
  for (int64_t chunks = 2; chunks <= kMostChunks && chunks * ranks <= layers; ++chunks) {
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
      TRIREME_CHECK(std::ranges::count(names, key) > 0, "--fix ", shown(key), ": did you mean \"",
                    nearest_name(names, key), "\"? It can fix ", in_words(names));
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
    // Time wants every device that the batch can use; cost and memory try fewer too.
    std::vector<int64_t> counts = {most};
    if (options_.objective == Objective::kCost) {
      for (int64_t n = most / 2; n >= 1; n /= 2) counts.push_back(n);
    }
    for (const int64_t devices : counts) {
      if (!each_axes(devices, visit)) {
        // No layout divides the batch over so many: the largest number that does.
        for (int64_t n = devices - 1; n >= 1; --n) {
          if (each_axes(n, visit)) break;
        }
      }
    }
  }

 private:
  bool each_axes(int64_t devices, const std::function<void(const Workload&)>& visit) const {
    bool any = false;
    const model::ModelConfig& model = base_.model;
    for (const int64_t tensor : fixed_.of("tensor", divisors(devices))) {
      // Neighbours of a number that does not divide a node lie on two nodes now and then.
      const bool is_split = cluster_.nodes > 1 && cluster_.devices_per_node % tensor != 0;
      const bool is_wide = tensor > cluster_.devices_per_node || tensor > model.heads || is_split;
      if (is_wide && !fixed_.has("tensor")) continue;
      for (const int64_t pipeline : fixed_.of("pipeline", divisors(devices / tensor))) {
        if (pipeline > model.layers) continue;
        for (const int64_t context : fixed_.of("context", divisors(devices / tensor / pipeline))) {
          const bool is_short = model.sequence_length / context < 4096;
          if (context > 1 && is_short && !fixed_.has("context")) continue;
          Workload work = base_;
          work.axes = {.data = devices / tensor / pipeline / context,
                       .tensor = tensor,
                       .pipeline = pipeline,
                       .context = context};
          if (!fixed_.allows("data", work.axes.data)) continue;
          if (base_.global_batch % work.axes.data != 0) continue;
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
      work.sizes.held_gradients = held_gradients(work.num_microbatches(), work.reproducible);
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
      if (zero > 0 && work.axes.data * work.axes.context == 1) continue;
      // ZeRO-3 would gather each stage's weights for each microbatch.
      if (zero >= 2 && work.axes.pipeline > 1 && !fixed_.has("zero")) continue;
      work.zero = zero;
      work.axes.shard = zero > 0 ? work.axes.data : 1;
      for (const auto& choice : model::kRecomputes) {
        if (!fixed_.allows("recompute", std::string(choice.name))) continue;
        work.recompute_kind = choice.value;
        work.recompute = model::recompute_plan(choice.value, options_.recompute_modules);
        visit(work);
      }
    }
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

}  // namespace

std::vector<std::string> candidate_keys() { return {std::begin(kKeys), std::end(kKeys)}; }

std::vector<std::pair<std::string, std::string>> settings_of(const Workload& work) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  return {{"parallel.data", text(work.axes.data)},
          {"parallel.tensor", text(work.axes.tensor)},
          {"parallel.sequence_parallel", work.sequence_parallel ? "true" : "false"},
          {"parallel.pipeline", text(work.axes.pipeline)},
          {"parallel.schedule", work.schedule},
          {"parallel.stages_per_rank", text(work.stages_per_rank)},
          {"parallel.context", text(work.axes.context)},
          {"parallel.expert", text(work.axes.expert)},
          {"parallel.zero", text(work.zero)},
          {"train.micro_batch", text(work.micro_batch)},
          {"train.recompute", name_of(model::kRecomputes, work.recompute_kind)}};
}

std::string describe(const Workload& work) {
  std::string text = concat("data ", work.axes.data);
  if (work.axes.tensor > 1) text += concat(" x tensor ", work.axes.tensor);
  if (work.axes.context > 1) text += concat(" x context ", work.axes.context);
  if (work.axes.expert > 1) text += concat(" x expert ", work.axes.expert, " (of these)");
  if (work.axes.pipeline > 1) {
    text += concat(" x pipeline ", work.axes.pipeline, " (", work.schedule,
                   work.stages_per_rank > 1 ? concat(" of ", work.stages_per_rank) : "", ")");
  }
  return concat(text, ", zero ", work.zero, ", microbatch ", work.micro_batch, ", recompute ",
                name_of(model::kRecomputes, work.recompute_kind));
}

SearchResult search(const Workload& base, const Cluster& cluster, const SearchOptions& options,
                    const Legality& legality) {
  SearchResult result;
  const double limit = cluster.device.memory_bytes * options.memory_share;
  std::vector<Scored> fitting, large;
  Candidates(base, cluster, options).each([&](const Workload& work) {
    ++result.num_candidates;
    const StepPrediction step = estimate_step(work, cluster, stage_layout(work));
    const bool fits = step.memory.total() <= limit;
    result.num_out_of_memory += fits ? 0 : 1;
    (fits ? fitting : large)
        .push_back({work, score_of(step, options.objective), step.memory.total()});
  });
  const auto predict = [&](const Scored& scored) {
    Plan plan{.work = scored.work, .layout = stage_layout(scored.work)};
    plan.step = predict_step(plan.work, cluster, plan.layout);
    return plan;
  };
  std::ranges::stable_sort(fitting, {}, &Scored::score);
  // Estimates leave the pipeline's bubble to a formula: simulate more than are wanted.
  const size_t wanted = std::max<size_t>(20, 4 * options.num_best);
  for (const Scored& scored : fitting) {
    if (result.best.size() == wanted) break;
    if (!legality(scored.work).empty()) {
      ++result.num_illegal;
      continue;
    }
    Plan plan = predict(scored);
    if (plan.step.memory.total() <= limit) result.best.push_back(std::move(plan));
  }
  std::ranges::stable_sort(
      result.best, {}, [&](const Plan& plan) { return score_of(plan.step, options.objective); });
  if (result.best.size() > options.num_best) result.best.resize(options.num_best);
  if (large.empty()) return result;
  const auto fastest = std::ranges::min_element(large, {}, &Scored::score);
  if (fitting.empty() || fastest->score < fitting.front().score) {
    result.too_large.push_back(predict(*fastest));
  }
  if (fitting.empty()) {
    result.too_large.push_back(predict(*std::ranges::min_element(large, {}, &Scored::bytes)));
  }
  return result;
}

}  // namespace trireme::plan
