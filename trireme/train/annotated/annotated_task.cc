#include "trireme/train/annotated/annotated_task.h"

#include <utility>

#include "trireme/train/annotated/annotated_trace.h"
#include "trireme/train/annotated/note_text.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {

spmd::Annotations AnnotatedTask::all_annotations() const {
  return with_notes(annotations(), notes_.notes);
}

spmd::Graph AnnotatedTask::trace(const RunConfig& config, int64_t samples) const {
  return trace_annotated(*this, config, training(), samples);
}

std::unique_ptr<Predictor> AnnotatedTask::annotated_predictor(const PredictRequest& request,
                                                              OutputAnswers answers) const {
  std::unique_ptr<StageModel> stage;
  if (request.has_model) {
    const model::ModelAxes axes;
    stage =
        model_.make_stage({.config = request.config, .axes = axes, .part = {}}, NetGoal::kScores);
    request.saved.load(stage->module());
  }
  return make_output_predictor(std::move(stage), std::move(answers));
}

std::unique_ptr<Task> AnnotatedTask::answering_module() const {
  std::unique_ptr<Task> copy = clone();
  dynamic_cast<AnnotatedTask&>(*copy).goal_ = NetGoal::kScores;
  return copy;
}

}  // namespace trireme::train
