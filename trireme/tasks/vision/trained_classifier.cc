#include "trireme/tasks/vision/trained_classifier.h"

#include "trireme/tasks/vision/vision.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

const dataset::ImageSource& TrainedClassifier::images() const {
  return dynamic_cast<const dataset::ImageSource&>(*config.task->validation());
}

TrainedClassifier load_trained_classifier(const std::filesystem::path& path, train::Weights weights,
                                          const std::string& data_path) {
  const train::SavedModel saved(path, weights);
  TrainedClassifier trained{
      .config = train::parse_saved_model(saved.config(), saved.folder().string(),
                                         train::default_config(train::TaskTable(&kVision, 1))),
      .classifier = nullptr};
  if (!data_path.empty()) vision_of(trained.config).data.path = data_path;
  trained.config.task->open(/*evaluates=*/true);
  saved.require_room(trained.config.task->num_parameters(), trained.config.dtype());
  trained.classifier = make_classifier(trained.config);
  saved.load(trained.classifier->module());
  return trained;
}

}  // namespace trireme::tasks
