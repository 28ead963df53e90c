// Recomputing a block more, or storing the inputs of one more, takes time and saves memory. So for
// each number of recomputed blocks only the smallest number of stored ones that fits can be the
// best, which is found by bisection, and none that recomputes more than what fits without storing.
#include "trireme/cli/train/key_choice.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::cli {
namespace {

using model::Recompute;

// train.micro_batch = "auto" and train.recompute = "auto"
std::string keys_in_words(const train::RunConfig& config) {
  std::string text;
  for (const std::string& key : config.chosen_keys())
    text += concat(text.empty() ? "" : " and ", key, " = \"auto\"");
  return text;
}

class Chooser {
 public:
  Chooser(const train::RunConfig& given, const plan::Cluster& cluster, int num_ranks)
      : given_(given),
        cluster_(cluster),
        num_ranks_(num_ranks),
        most_bytes_(cluster.device.memory_bytes * plan::SearchOptions().memory_share) {}

  KeyChoice choose() {
    for (const int64_t micro_batch : micro_batches()) {
      for (const auto& kind : model::kChosenRecomputes) {
        if (!chooses_recompute_ && kind.value != given_.train.recompute) continue;
        train::RunConfig candidate = given_;
        candidate.train.micro_batch = micro_batch;
        candidate.train.recompute = kind.value;
        if (chooses_recompute_) set_blocks(candidate, 0, 0);
        visit(std::move(candidate));
      }
    }
    const std::string key = keys_in_words(given_);
    TRIREME_CHECK(num_candidates_ > 0, key, ": ", refusal_);
    const bool of_microbatch = given_.chosen_keys().front() == "train.micro_batch";
    TRIREME_CHECK(best_.has_value(), key, ": no ", of_microbatch ? "microbatch" : "recomputation",
                  " fits: the smallest needs ", human_bytes(smallest_), " per rank, which have ",
                  human_bytes(cluster_.device.memory_bytes),
                  "; use more ranks, another layout or a smaller model");
    best_->num_candidates = num_candidates_;
    return *std::move(best_);
  }

 private:
  std::vector<int64_t> micro_batches() const {
    if (given_.train.micro_batch > 0) return {given_.train.micro_batch};
    const train::ParallelConfig& axes = given_.parallel;
    const int64_t parts = axes.tensor * axes.pipeline * axes.context;
    const int64_t data = std::max<int64_t>(1, num_ranks_ / parts);
    return plan::divisors((given_.train.global_batch + data - 1) / data);
  }

  // recomputed: of the blocks of each stage; stored: of those. 0: none.
  static void set_blocks(train::RunConfig& config, int64_t recomputed, int64_t stored) {
    config.train.recompute_blocks = recomputed;
    config.offload.activation_blocks = stored;
    if (stored == 0) config.offload.activations = train::OffloadPlace::kNone;
  }

  // Tries all numbers of blocks if they are to be chosen, otherwise those of the candidate.
  void visit(train::RunConfig candidate) {
    plan::Plan plan;
    try {
      plan.work = resolve_on(candidate, num_ranks_);
    } catch (const ConfigError& error) {
      if (refusal_.empty()) refusal_ = error.what();
      return;
    }
    if (plan.work.num_microbatches() > plan::kMostMicrobatches) {
      if (refusal_.empty())
        refusal_ = concat("train.micro_batch = ", candidate.train.micro_batch, " makes ",
                          plan.work.num_microbatches(), " microbatches, more than the ",
                          plan::kMostMicrobatches, " that the planner knows");
      return;
    }
    plan.layout = runtime_stages(candidate);
    if (!chooses_recompute_ || candidate.train.recompute == Recompute::kNone) {
      fits(candidate, plan);
      return;
    }
    const int64_t most = std::ranges::max(plan.layout.layers);
    const bool can_store = given_.leaves_memory(given_.offload.activations);
    for (int64_t recomputed = 1; recomputed <= most; ++recomputed) {
      const auto fits_with = [&](int64_t stored) {
        train::RunConfig one = candidate;
        one.offload.activations = given_.offload.activations;
        set_blocks(one, recomputed, stored);
        plan.work.recompute = one.recompute_plan();
        if (one.parallel.stage_memory == 0) return fits(one, plan);
        try {  // what is kept decides the stages
          plan.layout = runtime_stages(one);
        } catch (const ConfigError& error) {
          refusal_ = error.what();
          return false;
        }
        return fits(one, plan);
      };
      if (fits_with(0)) return;
      if (!can_store || !fits_with(recomputed)) continue;
      int64_t too_few = 0, enough = recomputed;
      while (enough - too_few > 1) {
        const int64_t middle = (too_few + enough) / 2;
        (fits_with(middle) ? enough : too_few) = middle;
      }
    }
  }

  // Keeps the candidate if it is the best so far.
  bool fits(const train::RunConfig& candidate, plan::Plan plan) {
    ++num_candidates_;
    plan::Cluster with_rates = cluster_;
    set_offload(candidate.offload, plan.work, with_rates);
    plan.step = predict_step(plan.work, with_rates, plan.layout);
    const double bytes = plan.step.memory.total();
    smallest_ = std::min(smallest_, bytes);
    if (bytes > most_bytes_) return false;
    if (!best_ || plan.step.step_seconds() < best_->plan.step.step_seconds()) {
      best_.emplace(KeyChoice{.config = candidate, .plan = std::move(plan)});
    }
    return true;
  }

  const train::RunConfig& given_;
  bool chooses_recompute_ = given_.train.recompute == Recompute::kAuto;
  const plan::Cluster& cluster_;
  int num_ranks_;
  double most_bytes_;
  std::optional<KeyChoice> best_;
  int64_t num_candidates_ = 0;
  std::string refusal_;
  double smallest_ = std::numeric_limits<double>::infinity();
};

}  // namespace

KeyChoice choose_keys(const train::RunConfig& config, const plan::Cluster& cluster, int num_ranks) {
  const std::string key = keys_in_words(config);
  TRIREME_CHECK(config.parallel.servers == 0, key,
                " with parallel.servers, which the planner does not know; set it to a value");
  TRIREME_CHECK(config.parallel.teachers == 0, key,
                " with parallel.teachers, which the planner does not know; set it to a value");
  TRIREME_CHECK(config.parallel.learners == 1, key,
                " with parallel.learners, which the planner does not know; set it to a value");
  TRIREME_CHECK(config.train.shares.empty() || config.train.micro_batch > 0,
                "train.micro_batch = \"auto\" with train.shares, which has the samples of each "
                "rank; set it to a number");
  return Chooser(config, cluster, num_ranks).choose();
}

std::vector<train::Override> chosen_values(const train::RunConfig& given,
                                           const train::RunConfig& chosen) {
  std::vector<train::Override> values;
  if (given.train.micro_batch == 0)
    values.emplace_back("train.micro_batch", std::to_string(chosen.train.micro_batch));
  if (given.train.recompute == Recompute::kAuto) {
    values.emplace_back("train.recompute", name_of(model::kRecomputes, chosen.train.recompute));
    values.emplace_back("train.recompute_blocks", std::to_string(chosen.train.recompute_blocks));
    values.emplace_back("offload.activations",
                        name_of(train::kOffloadPlaces, chosen.offload.activations));
    values.emplace_back("offload.activation_blocks",
                        std::to_string(chosen.offload.activation_blocks));
  }
  return values;
}

std::string describe_values(const train::RunConfig& given, const train::RunConfig& chosen) {
  std::string text;
  if (given.train.micro_batch == 0) text = concat("microbatch ", chosen.train.micro_batch);
  if (given.train.recompute != Recompute::kAuto) return text;
  text += concat(text.empty() ? "" : ", ", "recompute ",
                 name_of(model::kRecomputes, chosen.train.recompute));
  if (chosen.train.recompute_blocks > 0)
    text += concat(" of ", chosen.train.recompute_blocks, " blocks a stage");
  if (chosen.offload.activations == train::OffloadPlace::kNone) return text;
  const int64_t stored = chosen.offload.activation_blocks;
  return text + concat(stored > 0 ? concat(", inputs of ", stored) : ", all inputs", " on ",
                       name_of(train::kOffloadPlaces, chosen.offload.activations));
}

}  // namespace trireme::cli
