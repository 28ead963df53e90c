// trireme plan.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/layout_search.h"
#include "trireme/cli/plan/learner_plan.h"
#include "trireme/cli/plan/planning.h"
#include "trireme/cli/plan/table_report.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/plan/search/search.h"
#include "trireme/tasks/recommend/automatic_tables.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// The command searches the layouts of language models; of recommendation models it places the
// tables only. The search begins with the config's own keys, so that those which are not searched
// stay as they are. A layout of all devices is written without its number of data ranks, because
// the config then fits clusters of other sizes as well. Tables are placed for the whole batch,
// however it is cut, so their config gets microbatches of one.

namespace {

struct PlanArguments {
  std::string model;
  std::string cluster;
  std::string objective = "time";
  std::string output;
  std::vector<std::string> fixed;  // "tensor=8"
  int64_t most_devices = 0;
  int num_best = 5;
  double zipf = -1;      // below 0: the data says it
  double table_gib = 0;  // 0: what the device leaves
  bool json = false;
  std::vector<std::string> overrides;  // as typed
};

std::map<std::string, std::string> fixed_of(const std::vector<std::string>& words) {
  std::map<std::string, std::string> fixed;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    TRIREME_CHECK(equals != word.npos && equals > 0, "--fix is \"", shown(word),
                  "\"; expected a key and its value, such as tensor=8");
    fixed[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return fixed;
}

plan::SearchResult find_plans(const PlanArguments& arguments, const PlanningCase& planning) {
  const plan::SearchOptions options{
      .objective = choose(plan::kObjectives, "--objective", arguments.objective),
      .fixed = fixed_of(arguments.fixed),
      .most_devices = arguments.most_devices,
      .num_best = static_cast<size_t>(arguments.num_best)};
  return search_layouts(planning.config, planning.cluster, options);
}

// Of a learner, if there are several.
std::string layout_of(const plan::Plan& plan, const PlanningCase& planning) {
  const int64_t learners = planning.config.parallel.learners;
  return concat(learners > 1 ? concat("learners ", learners, " x ") : "", describe(plan.work));
}

nlohmann::json plan_to_json(const plan::Plan& plan, const PlanningCase& planning) {
  nlohmann::json one = to_json(plan.step);
  one["run"] = to_json(forecast(plan.step, planning.cluster, planning.config.train.steps));
  one["layout"] = layout_of(plan, planning);
  const train::RunConfig config = with_layout(planning.config, plan.work);
  const RunPrediction run = predict_run(config, plan.work, planning.cluster, plan.layout);
  if (run.learners) one["outer"] = to_json(*run.learners, config);
  for (const auto& [key, value] : settings_of(plan.work)) one["settings"][key] = value;
  return one;
}

// In which of its costs `other` is dearer than `best`, largest first.
std::string why_slower(const plan::Plan& best, const plan::Plan& other) {
  const plan::StepSeconds &a = best.step.seconds, &b = other.step.seconds;
  std::vector<std::pair<double, const char*>> causes = {
      {b.compute - a.compute, "computation"},
      {b.communication() - a.communication(), "communication"},
      {b.bubble - a.bubble, "bubble"},
      {b.optimizer - a.optimizer, "optimizer"}};
  std::ranges::sort(causes, std::greater<>());
  const double all = best.step.step_seconds();
  return causes.front().first > 0.002 * all
             ? format("+%.1f %% %s", 100 * causes.front().first / all, causes.front().second)
             : "as fast";
}

// "250 k steps: 12.3 days, 18.9 k device-hours, cost 37.7 k".
std::string train_time(const plan::Plan& plan, const PlanningCase& planning) {
  const int64_t steps = planning.config.train.steps;
  const RunForecast run = forecast(plan.step, planning.cluster, steps);
  return concat(human_count(static_cast<double>(steps)), " steps: ", describe(run));
}

void print_plans(const plan::SearchResult& found, const PlanningCase& planning, double seconds) {
  std::printf("cluster  %s\n", describe(planning.cluster).c_str());
  std::printf("searched %s layouts in %.2f s: %s do not fit, %s cannot run\n",
              human_count(static_cast<double>(found.num_candidates)).c_str(), seconds,
              human_count(static_cast<double>(found.num_out_of_memory)).c_str(),
              human_count(static_cast<double>(found.num_illegal)).c_str());
  for (size_t i = 0; i < found.best.size(); ++i) {
    const plan::Plan& plan = found.best[i];
    std::printf("%zu  %s\n   %.3f s, %s tokens/s, MFU %.1f %%, %s of %s%s%s\n", i + 1,
                layout_of(plan, planning).c_str(), plan.step.step_seconds(),
                human_count(plan.step.tokens_per_second()).c_str(),
                100 * plan.step.flops_per_device() / plan.step.peak,
                human_bytes(plan.step.memory.total()).c_str(),
                human_bytes(plan.step.available_bytes).c_str(), i == 0 ? "" : "; ",
                i == 0 ? "" : why_slower(found.best.front(), plan).c_str());
    std::printf("   %s\n", train_time(plan, planning).c_str());
  }
  for (const plan::Plan& plan : found.too_large) {
    std::printf("-  %s\n   %.3f s, but needs %s more than there is\n",
                layout_of(plan, planning).c_str(), plan.step.step_seconds(),
                human_bytes(plan.step.memory.total() - plan.step.available_bytes).c_str());
  }
}

// A layout of all devices leaves the number of data ranks to whoever starts it: the config then
// also fits clusters of other sizes.
void write_config(const std::string& path, const PlanningCase& planning, const plan::Plan& plan) {
  train::RunConfig config = with_layout(planning.config, plan.work);
  if (plan.step.num_devices == planning.cluster.num_devices()) config.parallel.data = 0;
  write_output("--output", path,
               concat("# ", layout_of(plan, planning), ": predicted ",
                      format("%.3f s a step, %.1f GiB", plan.step.step_seconds(),
                             plan.step.memory.total() / (1 << 30)),
                      "\n", train::to_toml(config)));
}

// Plans the tables of a recommendation model.
int plan_tables(const PlanArguments& arguments, PlanningCase& planning) {
  TRIREME_CHECK(
      arguments.fixed.empty() && arguments.objective == "time" && arguments.output.empty(),
      "task.name is \"recommend\", of which only the tables are planned; leave --fix, "
      "--objective and --output out, and train with tables.placement = \"auto\"");
  plan::Cluster& cluster = planning.cluster;
  if (arguments.most_devices > 0 && arguments.most_devices < cluster.num_devices()) {
    cluster.devices_per_node = std::min(cluster.devices_per_node, arguments.most_devices);
    cluster.nodes = arguments.most_devices / cluster.devices_per_node;
  }
  TRIREME_CHECK(cluster.num_devices() <= kMaxRanks, "the cluster has ", cluster.num_devices(),
                " devices; expected at most ", kMaxRanks, "; use --gpus-at-most");
  const auto start = std::chrono::steady_clock::now();
  const auto num_ranks = static_cast<int>(cluster.num_devices());
  // Tables are placed for the batch, however it is cut into microbatches.
  planning.config.train.micro_batch = 1;
  planning.config.train.uneven_batches = true;
  train::resolve(planning.config, num_ranks);
  tasks::MeasuredTables tables;
  if (arguments.zipf >= 0) {
    tables = tasks::assume_tables(planning.config, num_ranks, arguments.zipf);
  } else {
    ProgressBar bar("read");
    tables = tasks::measure_tables(planning.config, num_ranks, [&](int64_t done, int64_t total) {
      const double bytes = train::sample_bytes(*planning.config.task);
      const auto in_bytes = [&](int64_t samples) {
        return static_cast<int64_t>(bytes * static_cast<double>(samples));
      };
      if (!arguments.json) bar.update(in_bytes(done), in_bytes(total));
    });
  }
  const double dense = tasks::dense_bytes(planning.config);
  plan::TableSearch search = table_search(cluster, dense, arguments.table_gib);
  // Rows lie on the disk, as many as there are.
  constexpr double kDisk = 1e18;
  if (tasks::recommend_of(planning.config).tables.memory > 0) search.memory_bytes = kDisk;
  const PlacedTables placed = place(std::move(tables), search);
  const double seconds = seconds_since(start);
  if (arguments.json) {
    nlohmann::json all = to_json(placed);
    all["search_seconds"] = seconds;
    std::printf("%s\n", json_text(all).c_str());
  } else {
    std::printf("cluster  %s, planned in %.2f s\n%s", describe(cluster).c_str(), seconds,
                show(placed).c_str());
  }
  return kDone;
}

int plan_layout(const PlanArguments& arguments) {
  PlanningCase planning =
      load_files(arguments.model, arguments.cluster, arguments.overrides, tasks::all_tasks());
  if (planning.config.task_choice.name == tasks::kRecommend.name) {
    return plan_tables(arguments, planning);
  }
  TRIREME_CHECK(arguments.zipf < 0 && arguments.table_gib == 0,
                "--zipf and --table-memory are of embedding tables, and task.name is \"",
                planning.config.task_choice.name, "\"; leave them out");
  find_data_sizes(planning.config);
  const auto start = std::chrono::steady_clock::now();
  const plan::SearchResult found = find_plans(arguments, planning);
  const double seconds = seconds_since(start);
  if (arguments.json) {
    nlohmann::json all{{"search_seconds", seconds},
                       {"candidates", found.num_candidates},
                       {"out_of_memory", found.num_out_of_memory},
                       {"plans", nlohmann::json::array()}};
    for (const plan::Plan& plan : found.best) all["plans"].push_back(plan_to_json(plan, planning));
    std::printf("%s\n", json_text(all).c_str());
  } else {
    print_plans(found, planning, seconds);
  }
  if (found.best.empty()) {
    throw ConfigError(describe_failure(found, planning.cluster));
  }
  if (!arguments.output.empty()) {
    write_config(arguments.output, planning, found.best.front());
    if (!arguments.json) std::printf("wrote    %s\n", printable(arguments.output).c_str());
  }
  return kDone;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Find the best layout of a model on a cluster: data, tensor, pipeline, context and\n"
      "expert ranks, ZeRO, microbatch, recomputation and schedule. Explains why other layouts\n"
      "lost.\n"
      "  trireme plan examples/plan/llama-8b.toml examples/clusters/dgx-h100.toml\n"
      "  ... --fix tensor=8 --output config.toml\n"
      "  ... --objective cost --gpus-at-most 64\n"
      "MODEL is a config. Its model, batch and precision are used; its layout is ignored. For\n"
      "a recommendation model, the command places the embedding tables instead: whole on one\n"
      "rank, split by rows so that hot rows are spread evenly, split by columns, or\n"
      "replicated. It reads samples of the prepared data and shows the memory, look-ups and\n"
      "bytes of each rank.\n"
      "  trireme plan examples/dlrm.toml cluster.toml\n"
      "  ... --table-memory 16 --zipf 1.05\n"
      "See docs/guide/planner.md.\n");
  command->add_option("model", arguments->model, "config file, as for `trireme train`")->required();
  command
      ->add_option("cluster", arguments->cluster,
                   "CLUSTER file, which describes the cluster (docs/guide/planner.md)")
      ->required();
  command
      ->add_option("--objective", arguments->objective,
                   "quantity to minimise: time, cost (device-seconds per step) or memory")
      ->capture_default_str();
  command->add_option("--fix", arguments->fixed,
                      "fix the value of a key, such as tensor=8; may be repeated. Keys: " +
                          joined(plan::candidate_keys()));
  command->add_option("--gpus-at-most", arguments->most_devices, "maximum number of devices to use")
      ->check(within({1, plan::kMostDevices}));
  command->add_option("--best", arguments->num_best, "number of layouts to show")
      ->capture_default_str()
      ->check(within({1, 100}));
  command->add_option("--output", arguments->output, "write the best layout to this config file");
  command
      ->add_option(
          "--table-memory", arguments->table_gib,
          "memory per rank for embedding tables, in GiB. Default: what the device has left")
      ->check(within({0, 1e9}));
  command
      ->add_option("--zipf", arguments->zipf,
                   "exponent of a Zipf distribution of ids. Default: read samples of the data")
      ->check(within({0, 4}));
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = plan_layout(*arguments);
  });
}

}  // namespace trireme::cli
