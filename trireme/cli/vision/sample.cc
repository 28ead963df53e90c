// trireme sample: images that a trained diffusion model draws.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/dataset/image/encode.h"
#include "trireme/tasks/diffusion/diffusion.h"

namespace trireme::cli {
namespace {

struct SampleArguments {
  std::string checkpoint;
  std::string output = "samples";
  int64_t images = 16;
  int64_t chosen_class = -1;
  bool without_class = false;
  bool average = false;
  bool json = false;
  tasks::SamplingOptions options;
};

// All images in one, as square as it can be, on black.
// Shapes: images [N, C, H, W] -> [C, rows * H, columns * W]
at::Tensor grid_of(const at::Tensor& images) {
  const int64_t N = images.size(0), H = images.size(2), W = images.size(3);
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(N))));
  const int64_t rows = (N + columns - 1) / columns;
  const at::Tensor grid = at::zeros({images.size(1), rows * H, columns * W}, images.options());
  for (int64_t i = 0; i < N; ++i) {
    grid.narrow(1, i / columns * H, H).narrow(2, i % columns * W, W).copy_(images[i]);
  }
  return grid;
}

int sample(const SampleArguments& arguments) {
  namespace fs = std::filesystem;
  const tasks::TrainedDiffusion trained = tasks::load_trained_diffusion(
      arguments.checkpoint, arguments.average ? train::Weights::kAverage : train::Weights::kLast);
  const model::DitConfig& config = trained.model->config();
  TRIREME_CHECK(arguments.chosen_class < config.classes, "--class is ", arguments.chosen_class,
                " and the model has ", config.classes, " classes; expected 0 to ",
                config.classes - 1, ": choose one of them");
  tasks::SamplingOptions options = arguments.options;
  for (int64_t i = 0; i < arguments.images; ++i) {
    options.classes.push_back(arguments.without_class       ? config.null_class()
                              : arguments.chosen_class >= 0 ? arguments.chosen_class
                                                            : i % config.classes);
  }
  at::Tensor images;
  {
    ProgressBar bar("sample", "steps");
    images = tasks::sample_images(*trained.model, trained.schedule(), options,
                                  [&](int64_t done, int64_t total) { bar.update(done, total); });
  }
  const fs::path folder = arguments.output;
  std::error_code failure;
  fs::create_directories(folder, failure);
  TRIREME_CHECK(!failure, "--output ", folder.string(),
                " is no folder, and none can be made: ", failure.message(), "; choose another");
  nlohmann::json files;
  for (int64_t i = 0; i < images.size(0); ++i) {
    std::string number = std::to_string(i);
    number.insert(0, number.size() < 4 ? 4 - number.size() : 0, '0');
    const int64_t drawn = options.classes[static_cast<size_t>(i)];
    const fs::path path = folder / (number + ".png");
    write_file_atomically(path, dataset::encode_png(images[i]));
    nlohmann::json file = {{"path", path.string()}, {"class", nullptr}};
    if (drawn != config.null_class()) file["class"] = drawn;
    files.push_back(std::move(file));
  }
  const fs::path grid = folder / "grid.png";
  write_file_atomically(grid, dataset::encode_png(grid_of(images)));
  if (arguments.json) {
    std::printf("%s\n", json_text({{"grid", grid.string()}, {"images", files}}).c_str());
    return kDone;
  }
  std::printf("%lld images in %s\ngrid: %s\n", static_cast<long long>(images.size(0)),
              printable(folder.string()).c_str(), printable(grid.string()).c_str());
  return kDone;
}

}  // namespace

void add_sample(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<SampleArguments>();
  auto& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "sample",
      "Draw images with a trained diffusion model: one PNG file each, and a grid of all.\n"
      "  trireme sample --checkpoint runs/diffusion --class 3 --output samples\n");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "folder of a run, or one of its checkpoints")
      ->required();
  command->add_option("--output", arguments->output, "folder to write, made when it is missing")
      ->capture_default_str();
  command->add_option("--images", arguments->images, "number of images")
      ->check(within({1, 1e4}))
      ->capture_default_str();
  auto* const chosen =
      command
          ->add_option("--class", arguments->chosen_class,
                       "class of the images, from 0. Default: one class after the other")
          ->check(within({0, 1e9}));
  command->add_flag("--no-class", arguments->without_class, "draw images without a class")
      ->excludes(chosen);
  command->add_option("--steps", options.steps, "number of DDIM steps")
      ->check(within({1, 1e6}))
      ->capture_default_str();
  command
      ->add_option("--guidance", options.guidance,
                   "classifier-free guidance scale; 1 = none, higher values follow the class more "
                   "closely")
      ->check(within({0, 1e6}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "random seed for sampling")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command->add_flag("--average", arguments->average,
                    "use the moving average of the weights (average.decay)");
  command->add_flag("--json", arguments->json, "print a JSON object");
  command->callback([arguments, &exit_code] { exit_code = sample(*arguments); });
}

}  // namespace trireme::cli
