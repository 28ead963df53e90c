#include "trireme/tasks/recommend/recommend_predictor.h"

#include <utility>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/rows/feature_rows.h"
#include "trireme/tasks/recommend/recommend_stage.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

// The run's problem on one rank, with all rows in memory: the files of a run that goes on stay its
// own. Rows that nothing updates need no states of an optimizer.
RecommendProblem problem_of(const train::PredictRequest& request, RecommendConfig config) {
  config.tables.memory = 0;
  config.tables.placement = TablePlacement::kReplicated;
  config.tables.optimizer = parallel::RowRule::kSgd;
  return {.config = std::move(config), .schema = dataset::read_schema(request.saved.run_folder())};
}

int64_t num_parameters(const RecommendProblem& problem) {
  int64_t count = 0;
  for (const parallel::TableConfig& table : tables_of(problem, 1).tables) {
    if (!table.is_open) count += table.rows * table.width;
  }
  return count;
}

// Shapes: scores_B [B] -> B answers with "score"
std::vector<train::Answer> score_answers(const at::Tensor& scores_B) {
  const at::Tensor scores = scores_B.to(at::kCPU, at::kDouble).contiguous();
  const auto* const score = scores.const_data_ptr<double>();
  std::vector<train::Answer> answers(static_cast<size_t>(scores.numel()));
  for (size_t i = 0; i < answers.size(); ++i) answers[i].numbers = {{"score", score[i]}};
  return answers;
}

class RecommendPredictor : public train::Predictor {
 public:
  RecommendPredictor(const train::PredictRequest& request, const RecommendConfig& config)
      : problem_(problem_of(request, config)),
        folder_(request.data.empty() ? config.data.path : request.data),
        input_format_(request.input_format),
        top_(request.top) {
    check_open_tables(problem_, request.saved.run_folder().string());
    if (!request.has_model) return;
    request.saved.require_room(num_parameters(problem_), at::kFloat);
    stage_ = std::make_unique<RecommendStage>(
        problem_, train::StageRequest{.config = request.config, .axes = axes_, .part = {}},
        nullptr);
    request.saved.load(stage_->module());
    request.saved.load(*stage_->tables().tables);
  }

  std::unique_ptr<dataset::RowSource> open(std::span<const std::string> inputs) override {
    const dataset::RawFormat format =
        input_format_.empty() ? dataset::format_of(problem_.schema)
                              : choose(dataset::kRawFormats, "--input-format", input_format_);
    return dataset::open_feature_rows(inputs, problem_.schema,
                                      {.format = format, .folder = folder_});
  }

  at::Tensor outputs(const dataset::Batch& batch) override { return stage_->outputs(batch); }
  std::vector<train::Answer> answers(const at::Tensor& outputs) override {
    if (problem_.is_two_tower()) return score_answers(outputs);
    if (problem_.num_outputs() == 1) return train::click_answers(outputs.flatten());
    return train::class_answers(outputs, problem_.schema.classes, top_);
  }

 private:
  RecommendProblem problem_;
  std::string folder_;
  std::string input_format_;
  int64_t top_;
  model::ModelAxes axes_{};
  std::unique_ptr<RecommendStage> stage_;  // null: other ranks have the model
};

}  // namespace

RecommendProblem answering_problem(const train::PredictRequest& request,
                                   const RecommendConfig& config) {
  RecommendProblem problem = problem_of(request, config);
  check_open_tables(problem, request.saved.run_folder().string());
  problem.config.tables.placement = TablePlacement::kRows;
  problem.is_answering = true;
  return problem;
}

std::unique_ptr<train::Predictor> make_recommend_predictor(const train::PredictRequest& request,
                                                           const RecommendConfig& config) {
  return std::make_unique<RecommendPredictor>(request, config);
}

}  // namespace trireme::tasks
