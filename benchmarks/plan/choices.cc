#include "benchmarks/plan/choices.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/plan/search/search.h"
#include "trireme/plan/step/step_prediction.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::benchmarks {
namespace {

// A layout that was measured, perhaps several times.
struct Layout {
  const PublishedRow* row = nullptr;
  plan::StepPrediction step{};
  std::vector<double> measured{};
  bool is_out_of_memory = false;

  double seconds() const {
    double sum = 0;
    for (const double one : measured) sum += one;
    return measured.empty() ? 0 : sum / static_cast<double>(measured.size());
  }
  bool fits(double share) const { return step.memory.total() <= share * step.available_bytes; }
};

// Layouts of one model, batch and number of devices, with the same software.
struct Group {
  const PublishedRow* first = nullptr;
  std::map<std::string, Layout> layouts{};

  // What the published rows and the planner's candidates have in common.
  plan::Cluster cluster() const {
    plan::Cluster cluster = first->cluster;
    cluster.attention = plan::has_fused_attention(first->work, cluster)
                            ? plan::AttentionKernel::kFused
                            : plan::AttentionKernel::kComposed;
    return cluster;
  }
};

std::string key_of(const PublishedRow& row) {
  const plan::Workload& work = row.work;
  const model::ModelConfig& model = work.model;
  const plan::Device& device = row.cluster.device;
  return concat(row.table, " ", device.name, " ", device.network_rate, " ", device.memory_bytes,
                " ", work.axes.num_ranks(), " ", work.global_batch, " ", model.family, " ",
                model.layers, " ", model.width, " ", model.heads, " ", model.kv_heads, " ",
                model.ffn_width, " ", model.sequence_length, " ", model.vocab_size, " ",
                work.sizes.gradient, " ", work.hides_tensor, " ",
                plan::has_fused_attention(work, row.cluster));
}

// In the order of the tables.
std::vector<Group> groups_of(const std::vector<PublishedRow>& rows) {
  std::vector<Group> groups;
  std::map<std::string, size_t> places;
  for (const PublishedRow& row : rows) {
    const auto [place, is_new] = places.emplace(key_of(row), groups.size());
    if (is_new) groups.push_back({.first = &row});
    Layout& layout = groups[place->second].layouts[plan::describe(row.work)];
    if (layout.row == nullptr) {
      layout.row = &row;
      layout.step = predict_step(row.work, row.cluster, stage_layout(row.work));
    }
    if (row.step_seconds > 0) layout.measured.push_back(row.step_seconds);
    layout.is_out_of_memory = layout.is_out_of_memory || row.is_out_of_memory;
  }
  return groups;
}

// The runtime's own rules.
std::string illegality(const plan::Workload& work) {
  std::vector<train::Override> keys = plan::settings_of(work);
  keys.emplace_back("train.global_batch", std::to_string(work.global_batch));
  keys.emplace_back("train.precision", "bf16");
  try {
    train::RunConfig config =
        train::parse_config("", "the published model", tasks::all_tasks(), keys);
    tasks::language_of(config).model = work.model;
    train::resolve(config, static_cast<int>(work.axes.num_ranks()));
    train::check_layout(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

double predicted(const Layout& layout) { return layout.step.step_seconds(); }

// The layout that is predicted to be fastest, of those that fit if any does.
const std::pair<const std::string, Layout>& fastest_of(const Group& group, double share) {
  return *std::ranges::min_element(group.layouts, {}, [&](const auto& entry) {
    return std::pair(!entry.second.fits(share), predicted(entry.second));
  });
}

void print_group(const char* kind, const Group& group) {
  const PublishedRow& row = *group.first;
  const std::string model = row.name.substr(0, row.name.find(' '));
  std::printf("%s\t%s\t%s\t%s\t%ld\t%ld\t%ld\t%zu", kind, row.table.c_str(),
              row.cluster.device.name.data(), model.c_str(),
              static_cast<long>(row.work.model.sequence_length),
              static_cast<long>(row.work.axes.num_ranks()),
              static_cast<long>(row.work.global_batch), group.layouts.size());
}

}  // namespace

void print_choices(const std::vector<PublishedRow>& rows) {
  for (const Group& group : groups_of(rows)) {
    const plan::SearchOptions options{.most_devices = group.first->work.axes.num_ranks()};
    const auto start = std::chrono::steady_clock::now();
    const plan::SearchResult found =
        plan::search(group.first->work, group.cluster(), options, illegality);
    const double seconds = seconds_since(start);
    const auto& [name, published] = *std::ranges::min_element(
        group.layouts, {}, [](const auto& entry) { return predicted(entry.second); });
    print_group("choice", group);
    const bool found_any = !found.best.empty();
    std::printf(
        "\t%s\t%.4f\t%.4f\t%s\t%.4f\t%.4f\t%.3f\n", name.c_str(), predicted(published),
        published.step.memory.total() / published.step.available_bytes,
        found_any ? describe(found.best.front().work).c_str() : "nothing fits",
        found_any ? found.best.front().step.step_seconds() : 0,
        found_any ? found.best.front().step.memory.total() / published.step.available_bytes : 0,
        seconds);
    std::fflush(stdout);
  }
}

void print_picks(const std::vector<PublishedRow>& rows) {
  const double share = plan::SearchOptions().memory_share;
  for (Group& group : groups_of(rows)) {
    std::erase_if(group.layouts, [](const auto& entry) {
      return entry.second.measured.empty() && !entry.second.is_out_of_memory;
    });
    if (group.layouts.size() < kLeastSweep) continue;
    const auto& [name, pick] = fastest_of(group, share);
    // What ran out of memory comes after everything that ran.
    const auto order = [](const Layout& layout) {
      return std::pair(layout.measured.empty(), layout.seconds());
    };
    size_t rank = 1;
    double best = 0;
    for (const auto& [_, other] : group.layouts) {
      if (order(other) < order(pick)) ++rank;
      if (!other.measured.empty() && (best == 0 || other.seconds() < best)) best = other.seconds();
    }
    print_group("pick", group);
    std::printf("\t%s\t%.4f\t%zu\t%.4f\n", name.c_str(), pick.seconds(), rank, best);
  }
}

}  // namespace trireme::benchmarks
