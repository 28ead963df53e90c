// trireme classify: what a trained classifier says of the validation images.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/file/file.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/number_range.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/vision/prediction_page.h"
#include "trireme/cli/vision/vision_commands.h"
#include "trireme/tasks/vision/trained_classifier.h"

namespace trireme::cli::inline internal {
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
  std::vector<Prediction> predictions;
  std::vector<ClassResult> classes;
  int64_t num_right = 0;
};

Result classify_all(const tasks::TrainedClassifier& trained) {
  constexpr int64_t kAtOnce = 32;
  const c10::NoGradGuard no_grad;
  const dataset::ImageSource& images = trained.images();
  Result result;
  for (const std::string& name : images.classes()) result.classes.push_back({.name = name});
  for (int64_t begin = 0; begin < images.size(); begin += kAtOnce) {
    std::vector<at::Tensor> pixels;
    const int64_t end = std::min(begin + kAtOnce, images.size());
    for (int64_t i = begin; i < end; ++i) {
      const dataset::NamedTensors sample = images.get(i, std::nullopt);
      pixels.push_back(dataset::find_tensor(sample, "image"));
      const at::Tensor label = dataset::find_tensor(sample, "label");
      result.predictions.push_back({.label = label.item<int64_t>()});
    }
    const at::Tensor all = at::stack(pixels);
    const auto [probabilities, found] =
        trained.classifier->logits(all).to(at::kDouble).softmax(1).max(1);
    for (int64_t i = begin; i < end; ++i) {
      Prediction& prediction = result.predictions[static_cast<size_t>(i)];
      prediction.image_CHW = pixels[static_cast<size_t>(i - begin)];
      prediction.found = found[i - begin].item<int64_t>();
      prediction.probability = probabilities[i - begin].item<double>();
      ClassResult& of_class = result.classes[static_cast<size_t>(prediction.label)];
      ++of_class.num_images;
      if (!prediction.is_right()) continue;
      ++of_class.num_right;
      ++result.num_right;
    }
  }
  return result;
}

int classify(const ClassifyArguments& arguments) {
  const tasks::TrainedClassifier trained = tasks::load_trained_classifier(
      arguments.checkpoint, arguments.average ? train::Weights::kAverage : train::Weights::kLast,
      arguments.data);
  const Result result = classify_all(trained);
  const auto count = static_cast<double>(result.predictions.size());
  const double accuracy = static_cast<double>(result.num_right) / count;
  if (!arguments.page.empty()) {
    write_file_atomically(arguments.page, prediction_page(result.classes, result.predictions,
                                                          static_cast<size_t>(arguments.images)));
  }
  if (arguments.json) {
    nlohmann::json object = {{"images", result.predictions.size()}, {"accuracy", accuracy}};
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
  if (!arguments.page.empty()) std::printf("page: %s\n", printable(arguments.page).c_str());
  return kDone;
}

}  // namespace

void add_classify(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ClassifyArguments>();
  CLI::App* command = app.add_subcommand(
      "classify",
      "Tell the validation images with a trained classifier, and show them.\n"
      "  trireme classify --checkpoint runs/vision --page runs/vision/predictions.html\n");
  command
      ->add_option("--checkpoint", arguments->checkpoint, "a run's folder, or one checkpoint of it")
      ->required();
  command->add_option("--data", arguments->data,
                      "where the images are, if not at the run's data.path");
  command->add_option("--page", arguments->page,
                      "HTML file to write: images with what was found, wrong ones first");
  command->add_option("--images", arguments->images, "largest number of images on the page")
      ->check(within({1, 1e5}))
      ->capture_default_str();
  command->add_flag("--average", arguments->average,
                    "use the moving average of the weights (average.decay)");
  command->add_flag("--json", arguments->json, "print a JSON object");
  command->callback([arguments, &exit_code] { exit_code = classify(*arguments); });
}

}  // namespace trireme::cli::inline internal
