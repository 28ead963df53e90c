#include "trireme/tasks/diffusion/diffusion.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/key.h"
#include "trireme/dataset/image/noised_images.h"
#include "trireme/model/dit/dit_plan.h"
#include "trireme/tasks/diffusion/diffusers_weights.h"
#include "trireme/tasks/diffusion/dit_model.h"
#include "trireme/tasks/vision/image_files.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {
namespace {

// Takes a size from the data where the key is 0.
void take_or_compare(int64_t& value, int64_t found, const char* key, const std::string& path) {
  if (value == 0) value = found;
  TRIREME_CHECK(value == found, "model.", key, " is ", value, " and ", path, " has ", found,
                "; set it to 0 or to that");
}

// Throws: ConfigError with the first key that makes another model of the folder's weights
void require_same_model(const DiffusersFolder& folder, const model::DitConfig& found,
                        const model::DitConfig& own) {
  visit_keys<model::DitConfig>([&](const auto& key) {
    TRIREME_CHECK(own.*key.member == found.*key.member, "model.", key.name, " is ", own.*key.member,
                  ", and by ", (folder.model / "config.json").string(), " it is ",
                  found.*key.member, "; leave it out or set it to that");
  });
}

class DiffusionTask : public train::Task, public train::PredictingTask {
 public:
  DiffusionTask() = default;
  DiffusionTask(const DiffusionTask& other)
      : Task(other),
        PredictingTask(other),
        config_(other.config_),
        tree_(other.tree_),
        training_(other.training_),
        validation_(other.validation_) {}
  DiffusionTask& operator=(const DiffusionTask&) = delete;

  std::unique_ptr<train::Task> clone() const override {
    return std::make_unique<DiffusionTask>(*this);
  }

  void add_keys(train::Keys& keys) override {
    keys.add("model", config_.dit);
    keys.add("data", config_.data);
    keys.add("augment", config_.augment);
    keys.add("diffusion", config_.noise);
  }
  train::TaskTraits traits() const override {
    const int64_t size = config_.dit.image_size, values = config_.dit.channels * size * size;
    return {
        .data_name = config_.data.path,
        .samples_name = concat("images of ", config_.dit.channels, " x ", size, " x ", size,
                               training_ ? without(*training_) : ""),
        .unit = "images",
        .sample_bytes = static_cast<double>(values) * (1 + sizeof(float)) + 2 * sizeof(int64_t)};
  }
  const train::TaskModel& model() const override {
    if (!model_) model_ = make_dit_model(config_);
    return *model_;
  }
  void check(const train::RunConfig& config) const override {
    check_augmentation(config_);
    Task::check(config);
  }

  void open(bool evaluates) override {
    tree_ = open_image_tree(config_.data);
    auto training = open_training_images(config_, *tree_);
    const auto validation =
        evaluates ? open_validation_images(config_, *training, *tree_) : nullptr;
    const auto [channels, height, width] = training->shape();
    const std::string& path = config_.data.path;
    TRIREME_CHECK(height == width, "the images are ", height, " x ", width,
                  " pixels, and a diffusion transformer takes squares; set data.image_size");
    model::DitConfig& dit = config_.dit;
    take_or_compare(dit.image_size, height, "image_size", path);
    take_or_compare(dit.channels, channels, "channels", path);
    const int64_t found = std::ssize(training->classes());
    if (dit.classes == 0) dit.classes = found;
    TRIREME_CHECK(dit.classes >= found, "model.classes is ", dit.classes, " and ", path, " has ",
                  found, "; set it to 0 or to at least that");
    model::validate(dit);
    const dataset::NoiseDraws draws{.timesteps = config_.noise.timesteps,
                                    .class_dropout = config_.noise.class_dropout,
                                    .null_class = dit.null_class()};
    training_ = dataset::noised(std::move(training), draws);
    if (validation) validation_ = dataset::noised(validation, draws);
  }
  void cancel_reads() const override { tree_->cancel(); }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }

  // Of a folder of diffusers.
  void take_keys_of(const std::filesystem::path& folder, train::RunConfig& /*config*/) override {
    const auto found = find_diffusers_folder(folder);
    if (!found) return;
    config_.dit = read_diffusers_model(*found).dit;
    read_diffusers_noise(*found, config_.noise);
  }
  std::unique_ptr<checkpoint::TensorSource> open_weights(
      const std::filesystem::path& folder) const override {
    const auto found = find_diffusers_folder(folder);
    if (!found) return nullptr;
    const DiffusersModel model = read_diffusers_model(*found);
    require_same_model(*found, model.dit, config_.dit);
    return std::make_unique<DiffusersWeights>(*found, model);
  }
  std::vector<std::string> notes_on_weights(const std::filesystem::path& folder,
                                            c10::ScalarType dtype) const override {
    const auto found = find_diffusers_folder(folder);
    if (!found) return {};
    const DiffusersModel model = read_diffusers_model(*found);
    std::vector<std::string> notes;
    if (model.has_variances)
      notes.emplace_back("the variances of the folder's model are left out: noise alone is learnt");
    const int64_t num_rounded = DiffusersWeights(*found, model).num_rounded(dtype);
    if (num_rounded > 0)
      notes.push_back(concat(num_rounded, " tensors are rounded to ",
                             name_of(train::kPrecisions, dtype),
                             "; another train.precision keeps every value"));
    return notes;
  }

  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    throw ConfigError(concat(request.saved.folder().string(),
                             " is of a diffusion model, which draws images; use `trireme sample`"));
  }

  DiffusionConfig& config() { return config_; }
  const DiffusionConfig& config() const { return config_; }

 private:
  DiffusionConfig config_;
  std::shared_ptr<const dataset::ImageTree> tree_;  // of the open data
  std::shared_ptr<const dataset::ImageSource> training_;
  std::shared_ptr<const dataset::ImageSource> validation_;  // null without evaluation
  mutable std::unique_ptr<train::TaskModel> model_;         // of config_
};

// The images that are computed at one time.
constexpr int64_t kGroup = 32;

// Image number `first` of the options and those after it.
at::Tensor sample_group(model::DiffusionTransformer& model, const model::NoiseSchedule& schedule,
                        const SamplingOptions& options, int64_t first,
                        const std::function<void()>& on_step) {
  const model::DitConfig& config = model.config();
  const at::ScalarType dtype = model.module().parameters().front().scalar_type();
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t B = std::min<int64_t>(kGroup, std::ssize(options.classes) - first);
  std::vector<at::Tensor> noises;
  for (int64_t i = first; i < first + B; ++i) {
    noises.push_back(dataset::sampling_noise(
        options.seed, i, {config.channels, config.image_size, config.image_size}));
  }
  at::Tensor images = at::stack(noises).to(wide);
  const at::Tensor classes = at::tensor(options.classes, at::kLong).narrow(0, first, B);
  const bool is_guided = options.guidance != 1;
  const at::Tensor asked =
      is_guided ? at::cat({classes, at::full_like(classes, config.null_class())}) : classes;
  for (const int64_t timestep : schedule.sampling_timesteps(options.steps)) {
    const at::Tensor input = is_guided ? at::cat({images, images}) : images;
    at::Tensor noise = model.noise_in(input, at::full_like(asked, timestep), asked).to(wide);
    if (is_guided) {
      const at::Tensor of_none = noise.narrow(0, B, B);
      noise = of_none + options.guidance * (noise.narrow(0, 0, B) - of_none);
    }
    images = schedule.remove_noise(images, noise, timestep, options.steps);
    on_step();
  }
  return images.add(1).mul_(127.5).round_().clamp_(0, 255).to(at::kByte);
}

}  // namespace

std::unique_ptr<train::Task> make_diffusion_task() { return std::make_unique<DiffusionTask>(); }

DiffusionConfig& diffusion_of(train::RunConfig& config) {
  return train::task_of<DiffusionTask>(config).config();
}

at::Tensor sample_images(model::DiffusionTransformer& model, const model::NoiseSchedule& schedule,
                         const SamplingOptions& options, const SamplingProgress& on_step) {
  const c10::NoGradGuard no_grad;
  const model::DitConfig& config = model.config();
  for (const int64_t each : options.classes) {
    TRIREME_CHECK(each >= 0 && each <= config.null_class(), "an image of class ", each,
                  "; expected 0 to ", config.classes - 1, ", or ", config.null_class(),
                  " for none: choose one of them");
  }
  const auto num_images = std::ssize(options.classes);
  const int64_t num_groups = (num_images + kGroup - 1) / kGroup;
  std::vector<at::Tensor> groups = {
      at::empty({0, config.channels, config.image_size, config.image_size}, at::kByte)};
  int64_t done = 0;
  for (int64_t first = 0; first < num_images; first += kGroup) {
    groups.push_back(sample_group(model, schedule, options, first, [&] {
      if (on_step) on_step(++done, num_groups * options.steps);
    }));
  }
  return at::cat(groups);
}

model::NoiseSchedule TrainedDiffusion::schedule() const {
  return model::NoiseSchedule(train::task_of<const DiffusionTask>(config).config().noise.options());
}

TrainedDiffusion load_trained_diffusion(const std::filesystem::path& path, train::Weights weights) {
  const train::SavedModel saved(path, weights);
  TrainedDiffusion trained{
      .config = train::parse_saved_model(saved.config(), saved.folder().string(),
                                         train::default_config(train::TaskTable(&kDiffusion, 1))),
      .model = nullptr};
  const model::DitConfig& dit = diffusion_of(trained.config).dit;
  model::validate(dit);
  // With its table of positions, which a file may make as large as it likes.
  saved.require_room(model::num_parameters(dit) + 2 * dit.num_tokens() * dit.width,
                     trained.config.dtype());
  trained.model =
      model::make_diffusion_transformer(dit, trained.config.train.seed, trained.config.dtype());
  saved.load(trained.model->module());
  return trained;
}

}  // namespace trireme::tasks
