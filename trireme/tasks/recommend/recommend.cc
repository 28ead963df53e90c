#include "trireme/tasks/recommend/recommend.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/tasks/recommend/automatic_tables.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/tasks/recommend/recommend_predictor.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/tasks/recommend/recommend_stage.h"
#include "trireme/tasks/recommend/scores.h"
#include "trireme/train/chain_model.h"
#include "trireme/train/parallel/stage_costs.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

void check_tables_key(const TablesConfig& tables) {
  const bool is_open = !tables.open.empty();
  TRIREME_CHECK(tables.placement != TablePlacement::kColumns || !is_open,
                "tables.placement is \"columns\", and tables.open is \"", shown(tables.open),
                "\", whose rows must be whole; set the placement to rows");
  const bool has_limits = tables.open_max_rows != 0 || tables.open_expire_steps != 0 ||
                          tables.open_min_uses != 1 ||
                          tables.open_when_full != parallel::FullTable::kEvict ||
                          tables.open_halve_steps != parallel::kOpenHalveSteps;
  TRIREME_CHECK(
      is_open || !has_limits,
      "tables.open_max_rows, _when_full, _halve_steps, _expire_steps or _min_uses is set, and "
      "tables.open is empty; set tables.open to ",
      kAllFeatures, " or to names of features, or remove the limits");
  const std::string when_full = name_of(parallel::kFullTables, tables.open_when_full);
  TRIREME_CHECK(tables.open_when_full == parallel::FullTable::kEvict || tables.open_max_rows > 0,
                "tables.open_when_full is \"", when_full,
                "\", and tables.open_max_rows is 0, which means no "
                "limit; set a limit");
  TRIREME_CHECK(tables.open_when_full == parallel::FullTable::kEvictRarest ||
                    tables.open_halve_steps == parallel::kOpenHalveSteps,
                "tables.open_halve_steps is ", tables.open_halve_steps,
                ", and tables.open_when_full is \"", when_full,
                "\", which counts no uses; set it to evict-rarest, or remove open_halve_steps");
}

// Parameter servers distribute the rows themselves and keep them in memory.
void check_served(const TablesConfig& tables) {
  TRIREME_CHECK(tables.placement == TablePlacement::kRows, "tables.placement is \"",
                name_of(kTablePlacements, tables.placement),
                "\" with parallel.servers, which distribute the rows themselves; remove it");
  TRIREME_CHECK(tables.memory == 0, "tables.memory is ", tables.memory,
                " with parallel.servers, which keep all rows in memory; set it to 0");
  TRIREME_CHECK(tables.open.empty(), "tables.open is \"", shown(tables.open),
                "\" with parallel.servers, whose tables have a fixed number of rows; remove it");
  TRIREME_CHECK(tables.optimizer != parallel::RowRule::kAdam,
                "tables.optimizer is \"adam\", which updates every row in each step, with "
                "parallel.servers, which update only pushed rows; set it to lazy-adam");
}

// What is trained, as the loop sees it.
class RecommendTaskModel : public train::TaskModel {
 public:
  // problem, data: the task's, which outlives this object.
  RecommendTaskModel(const RecommendProblem& problem, const dataset::FeatureData& data)
      : problem_(problem), data_(data) {}

  train::ModelTraits traits() const override {
    constexpr double kForwardAndBackward = 3;  // backward computes two products for each
    return {
        .name = model_name(),
        .num_parameters = num_parameters(),
        .flops_per_sample = kForwardAndBackward * outline().flops(),
        .has_tables_on_disk = problem_.config.tables.memory > 0,
        .memory_keys = {.states = {train::with_value("model.width", problem_.config.model.width)}}};
  }
  void check(const train::RunConfig& config) const override {
    const RecommendModelConfig& model = problem_.config.model;
    parse_widths(model.bottom, "model.bottom");
    parse_widths(model.top, "model.top");
    check_tables_key(problem_.config.tables);
    if (config.parallel.servers > 0) check_served(problem_.config.tables);
    TRIREME_CHECK(problem_.config.tables.learning_rate == 0 || config.optimizer.learning_rate > 0,
                  "tables.learning_rate follows optimizer.learning_rate, which is 0; set it above "
                  "0");
    TRIREME_CHECK(
        !config.train.measure_noise,
        "train.measure_noise compares the gradients of microbatches, but embedding tables "
        "sum them over the whole step; set it to false");
    train::check_chain(config);
    for (const auto& [key, blocks] :
         {std::pair("train.recompute_blocks", config.train.recompute_blocks),
          {"offload.activation_blocks", config.offload.activation_blocks}}) {
      TRIREME_CHECK(blocks == 0, key, " is ", blocks,
                    ", and a model of task recommend is recomputed as a whole; set it to 0");
    }
  }

  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    std::vector<model::ParameterPlan> plan;
    for (const auto& item : outline().named_parameters()) {
      plan.push_back(
          {item.key(), mesh::Layout(item.value().sizes().vec(), {{"tensor", sizes.tensor}})});
    }
    return plan;
  }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    double dense = 0;
    for (const at::Tensor& parameter : outline().parameters()) {
      dense += static_cast<double>(parameter.numel());
    }
    return {
        {.time = std::max(outline().flops(), 1.0),
         .memory = dense * train::state_bytes_per_parameter(config, problem_.config.model.width)}};
  }
  std::vector<train::StageEdges> edges(int /*num_stages*/) const override {
    train::StageEdges edges{.inputs = {"label"}, .outputs = {"loss", "metrics"}};
    if (problem_.is_two_tower()) edges.inputs = {"item"};
    if (problem_.is_answering) edges = {.inputs = {"ids"}, .outputs = {"scores"}};
    if (problem_.schema.num_dense() > 0) edges.inputs.emplace_back("dense");
    return {edges};
  }
  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    RecommendProblem problem = problem_;
    comm::Communicator* const group = request.axes.batch.group;
    if (problem.config.tables.placement == TablePlacement::kAuto && group != nullptr &&
        group->size() > 1) {
      problem.choice = choose_tables(problem, *data_.training, request.config,
                                     dense_bytes(request.config), *group);
      choice_ = to_json(problem.choice, tables_of(problem, group->size()).tables);
    }
    return std::make_unique<RecommendStage>(problem, request, data_.items);
  }
  // How the last stage's tables were placed, as text; "": it had no choice.
  const std::string& choice() const { return choice_; }

 private:
  std::string model_name() const {
    int64_t rows = 0, num_open = 0;
    for (int64_t column = 0; column < problem_.schema.num_tables(); ++column) {
      const bool is_open = problem_.is_open(column);
      num_open += is_open ? 1 : 0;
      rows += is_open ? 0 : problem_.schema.tables[static_cast<size_t>(column)].rows;
    }
    const auto num_fixed = problem_.schema.num_tables() - num_open;
    std::string features = concat(num_fixed, " features with ", rows, " ids");
    if (num_open > 0) {
      const std::string open = concat(num_open, " features with any ids");
      features = num_fixed > 0 ? concat(features, ", ", open) : open;
    }
    return concat(name_of(kRecommendFamilies, problem_.config.model.family), ", ", features,
                  ", width ", problem_.config.model.width);
  }
  int64_t num_parameters() const {
    int64_t count = 0;
    for (const at::Tensor& parameter : outline().parameters()) count += parameter.numel();
    for (const parallel::TableConfig& table : tables_of(problem_, 1).tables) {
      if (!table.is_open) count += table.rows * table.width;
    }
    return count;
  }
  // The network, for its shapes only. Made once the data is open.
  const Network& outline() const {
    if (!outline_) outline_ = make_network(problem_, /*seed=*/0);
    return *outline_;
  }

  const RecommendProblem& problem_;
  const dataset::FeatureData& data_;
  mutable std::shared_ptr<const Network> outline_;
  mutable std::string choice_;
};

class RecommendTask : public train::Task, public train::PredictingTask {
 public:
  RecommendTask() = default;
  RecommendTask(const RecommendTask& other)
      : Task(other), PredictingTask(other), problem_(other.problem_), data_(other.data_) {}
  RecommendTask& operator=(const RecommendTask&) = delete;

  std::unique_ptr<train::Task> clone() const override {
    return std::make_unique<RecommendTask>(*this);
  }

  void add_keys(train::Keys& keys) override {
    keys.add("model", problem_.config.model);
    keys.add("data", problem_.config.data);
    keys.add("tables", problem_.config.tables);
  }
  train::TaskTraits traits() const override {
    const dataset::FeatureSchema& schema = problem_.schema;
    constexpr int64_t kOthers = 2;  // label and item
    const int64_t integers = schema.num_ids() + schema.num_tables() + kOthers;
    return {.data_name = problem_.config.data.path,
            .samples_name = concat("samples of ", schema.num_dense(), " numbers and ",
                                   schema.tables.size(), " id features"),
            .sample_bytes = static_cast<double>(schema.num_dense() * sizeof(float) +
                                                integers * sizeof(int64_t)),
            .metrics = metrics_of(problem_),
            .evaluation_metrics = evaluation_metrics_of(problem_),
            .file_names = {dataset::kSchemaFile, kTableChoiceFile},
            .has_tables = true};
  }
  const train::TaskModel& model() const override { return model_; }

  void open(bool evaluates) override {
    const fs::path folder = problem_.config.data.path;
    data_ = dataset::open_features(folder);
    problem_.schema = data_.schema;
    check_features();
    TRIREME_CHECK(!evaluates || data_.validation, "train.evaluate_interval is set, and ",
                  problem_.config.data.path, " has no ", dataset::kValidationFile,
                  "; prepare it with --validation 0.1, or set the interval to 0");
    if (!evaluates) data_.validation = nullptr;
  }
  const dataset::Source& training() const override { return *data_.training; }
  const dataset::Source* validation() const override { return data_.validation.get(); }
  void write_files(const fs::path& folder) const override {
    fs::copy_file(fs::path(problem_.config.data.path) / dataset::kSchemaFile,
                  folder / dataset::kSchemaFile, fs::copy_options::overwrite_existing);
    if (!model_.choice().empty()) {
      write_file_atomically(folder / kTableChoiceFile, model_.choice());
    }
  }

  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    return make_recommend_predictor(request, problem_.config);
  }
  std::unique_ptr<train::Task> make_answering(const train::PredictRequest& request) override {
    auto task = std::make_unique<RecommendTask>();
    task->problem_ = answering_problem(request, problem_.config);
    return task;
  }

  RecommendConfig& config() { return problem_.config; }

 private:
  void check_features() const {
    const dataset::FeatureSchema& schema = problem_.schema;
    const std::string path = problem_.config.data.path;
    TRIREME_CHECK(!schema.tables.empty(), path,
                  " has no id features; a recommendation model needs at least one");
    check_open_tables(problem_, path);
    const bool has_items = !columns_of(schema, dataset::TableSide::kItem).empty();
    TRIREME_CHECK(!problem_.is_two_tower() || has_items, "model.family is \"two-tower\", and ",
                  path, " has no items; prepare pairs of queries and items, or choose dlrm");
    TRIREME_CHECK(problem_.is_two_tower() || schema.label != dataset::LabelKind::kNone,
                  "model.family is \"", name_of(kRecommendFamilies, problem_.config.model.family),
                  "\", and ", path, " has no labels; choose two-tower");
  }

  RecommendProblem problem_;
  dataset::FeatureData data_;
  RecommendTaskModel model_{problem_, data_};
};

}  // namespace

std::unique_ptr<train::Task> make_recommend_task() { return std::make_unique<RecommendTask>(); }

RecommendConfig& recommend_of(train::RunConfig& config) {
  return train::task_of<RecommendTask>(config).config();
}

}  // namespace trireme::tasks
