// trireme classify: what a trained classifier says of the validation images.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/file/file.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/vision/prediction_page.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/tasks/vision/vision.h"
#include "trireme/train/task/predictor.h"

namespace trireme::cli {
namespace {

struct ClassifyArguments {
  std::string checkpoint;
  std::string data;
  std::string page;
  int64_t images = 96;
  bool average = false;
  bool json = false;
};

struct Result {
  std::vector<Prediction> predictions;  // in the order of the images
  std::vector<ClassResult> classes;
};

Result classify_all(const tasks::TrainedClassifier& trained) {
  const c10::NoGradGuard no_grad;
  const dataset::ImageSource& images = trained.images();
  dataset::BatchReader reader(
      images, {.global_batch = images.size(), .micro_batch = 32, .uneven = true, .shuffle = false},
      {.num_workers = 1, .num_steps = 1});
  Result result;
  for (const std::string& name : images.classes()) result.classes.push_back({.name = name});
  for (int64_t i = 0; i < reader.loader().num_microbatches(0); ++i) {
    const dataset::Batch batch = reader.read(/*step=*/0, i);
    const auto [probabilities, found] =
        train::class_probabilities(trained.classifier->logits(batch["image"])).max(1);
    for (int64_t b = 0; b < batch.size(); ++b) {
      const Prediction prediction{.label = batch["label"][b].item<int64_t>(),
                                  .found = found[b].item<int64_t>(),
                                  .probability = probabilities[b].item<double>()};
      ClassResult& of_class = result.classes[static_cast<size_t>(prediction.label)];
      ++of_class.num_images;
      of_class.num_right += prediction.is_right() ? 1 : 0;
      result.predictions.push_back(prediction);
    }
  }
  return result;
}

int classify(const ClassifyArguments& arguments) {
  const tasks::TrainedClassifier trained = tasks::load_trained_classifier(
      arguments.checkpoint, arguments.average ? train::Weights::kAverage : train::Weights::kLast,
      arguments.data);
  const Result result = classify_all(trained);
  const ClassResult total = total_of(result.classes);
  const double accuracy =
      static_cast<double>(total.num_right) / static_cast<double>(total.num_images);
  if (!arguments.page.empty()) {
    const auto image_of = [&](size_t index) {
      const auto sample = trained.images().get(static_cast<int64_t>(index), std::nullopt);
      return dataset::find_tensor(sample, "image");
    };
    write_file_atomically(arguments.page,
                          prediction_page(result.classes, result.predictions,
                                          static_cast<size_t>(arguments.images), image_of));
  }
  if (arguments.json) {
    nlohmann::json object = {{"images", result.predictions.size()},
                             {"accuracy", accuracy},
                             {"left_out", trained.images().num_left_out()}};
    for (const ClassResult& each : result.classes) {
      object["classes"].push_back(
          {{"name", each.name}, {"images", each.num_images}, {"right", each.num_right}});
    }
    if (!arguments.page.empty()) object["page"] = arguments.page;
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  size_t width = 0;
  for (const ClassResult& each : result.classes) width = std::max(width, each.name.size());
  for (const ClassResult& each : result.classes) {
    if (each.num_images == 0) continue;
    std::printf("  %-*s %5lld of %5lld right\n", static_cast<int>(width),
                printable(each.name).c_str(), static_cast<long long>(each.num_right),
                static_cast<long long>(each.num_images));
  }
  std::printf("accuracy %.1f %% of %zu validation images\n", 100 * accuracy,
              result.predictions.size());
  const std::string left_out = dataset::left_out_text(trained.images().num_left_out());
  if (!left_out.empty()) std::printf("left out %s\n", left_out.c_str());
  if (!arguments.page.empty()) std::printf("page: %s\n", printable(arguments.page).c_str());
  return kDone;
}

}  // namespace

void add_classify(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ClassifyArguments>();
  CLI::App* command = app.add_subcommand(
      "classify",
      "Classify the validation images with a trained model, and show the results.\n"
      "  trireme classify --checkpoint runs/vision --page runs/vision/predictions.html\n");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "folder of a run, or one of its checkpoints")
      ->required();
  command->add_option("--data", arguments->data,
                      "path of the images. Default: the run's data.path");
  command->add_option("--page", arguments->page,
                      "HTML file to write, with images and predictions, errors first");
  command->add_option("--images", arguments->images, "maximum number of images on the page")
      ->check(within({1, 1e5}))
      ->capture_default_str();
  command->add_flag("--average", arguments->average,
                    "use the moving average of the weights (average.decay)");
  command->add_flag("--json", arguments->json, "print a JSON object");
  command->callback([arguments, &exit_code] { exit_code = classify(*arguments); });
}

}  // namespace trireme::cli
