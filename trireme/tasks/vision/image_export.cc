#include "trireme/tasks/vision/image_export.h"

#include <span>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/model_card.h"
#include "trireme/tasks/export/weight_files.h"
#include "trireme/tasks/vision/image_configs.h"
#include "trireme/tasks/vision/image_names.h"
#include "trireme/tasks/vision/vision.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using Plan = std::span<const model::ParameterPlan>;

void check_form(const ExportedImageModel& model, ExportForm form, const fs::path& folder) {
  const std::string name = name_of(kExportForms, form);
  TRIREME_CHECK(form != ExportForm::kPeft, "--format is \"", name, "\", and ", folder.string(),
                " is of an image model, which has no adapters; expected hf, timm, safetensors or "
                "dcp");
  TRIREME_CHECK(form != ExportForm::kDiffusers, "--format is \"", name, "\", and ", folder.string(),
                " is of an image classifier, which diffusers lacks; expected hf, timm, safetensors "
                "or dcp");
  const bool is_other = form == ExportForm::kHuggingFace || form == ExportForm::kTimm;
  TRIREME_CHECK(
      !is_other || model.is_vit() || model.problem.config.model.stem == ResNetStem::kLarge,
      "--format is \"", name, "\", and ", folder.string(),
      " has model.stem = \"small\", a first layer that this program's ResNets lack; use "
      "safetensors, whose README.md says how torchvision loads it");
}

std::vector<model::HuggingFaceTensor> tensors_of(const ExportedImageModel& model, ExportForm form,
                                                 Plan plan) {
  if (model.is_vit()) {
    return form == ExportForm::kTimm ? timm_vit_tensors(plan) : own_tensors(plan);
  }
  return form == ExportForm::kHuggingFace ? hf_resnet_tensors(plan) : resnet_tensors(plan);
}

std::string timm_loading(const ExportedImageModel& model) {
  constexpr double kTimmEpsilon = 1e-6;
  const double epsilon = model.problem.config.vit.norm_epsilon;
  if (!model.is_vit() || epsilon == kTimmEpsilon) {
    return "import timm\n\nmodel = timm.create_model(\"local-dir:FOLDER\", "
           "pretrained=True).eval()\n";
  }
  // A config of timm cannot say it.
  return concat(
      "import functools\n\nimport timm\nimport torch\n\nnorm = functools.partial("
      "torch.nn.LayerNorm, eps=",
      epsilon,
      ")\nmodel = timm.create_model(\"local-dir:FOLDER\", pretrained=True, "
      "norm_layer=norm).eval()\n");
}

std::string torchvision_loading(const ExportedImageModel& model) {
  const VisionConfig& config = model.problem.config;
  std::string text = concat(
      "import torch\nimport torchvision\nfrom safetensors.torch import load_file\n\nmodel = "
      "torchvision.models.",
      name_of(kImageFamilies, config.model.family), "(num_classes=", model.classes.size(), ")\n");
  const int64_t channels = model.problem.shape.channels;
  const bool is_small = config.model.stem == ResNetStem::kSmall;
  if (is_small || channels != 3) {
    text += concat("model.conv1 = torch.nn.Conv2d(", channels, ", 64, ",
                   is_small ? "3, padding=1" : "7, stride=2, padding=3", ", bias=False)\n");
  }
  if (is_small) text += "model.maxpool = torch.nn.Identity()\n";
  return text +
         "model.load_state_dict(load_file(\"FOLDER/model.safetensors\"), strict=False)\n"
         "model.eval()\n";
}

std::string transformers_loading(const std::string& architecture) {
  return concat("import transformers\n\nmodel = transformers.", architecture,
                ".from_pretrained(\"FOLDER\")\nprocessor = "
                "transformers.AutoImageProcessor.from_pretrained(\"FOLDER\")\n");
}

void write_beside(const fs::path& target, const ExportInput& input, const ExportedImageModel& model,
                  const ExportOptions& options, const ExportReport& report) {
  ModelCard card{.title = concat(name_of(kImageFamilies, model.problem.config.model.family),
                                 " image classifier"),
                 .pipeline = "image-classification",
                 .license = options.license};
  switch (options.form) {
    case ExportForm::kHuggingFace:
      card.library = "transformers";
      card.loading = transformers_loading(report.architecture);
      write_file_atomically(target / "config.json", transformers_config(model, report.dtype));
      write_file_atomically(target / "preprocessor_config.json", transformers_preprocessor(model));
      break;
    case ExportForm::kTimm:
      card.library = "timm";
      card.loading = timm_loading(model);
      write_file_atomically(target / "config.json", timm_config(model));
      break;
    default:
      if (!model.is_vit()) card.loading = torchvision_loading(model);
      write_file_atomically(target / "config.json", own_config(model));
  }
  card.facts = facts_of(input, name_of_model(model.problem), options, report);
  write_file_atomically(target / kCardFile, to_markdown(card));
}

}  // namespace

ExportReport export_image_model(const fs::path& path, const fs::path& output,
                                const ExportOptions& options) {
  check_export(options);
  const ExportInput input(path, options);
  train::RunConfig config =
      train::parse_saved_model(input.state.config, input.folder.string(),
                               train::default_config(train::TaskTable(&kVision, 1)));
  const TrainedImages images = trained_images(config, input.run_folder());
  const ExportedImageModel model = exported_model(image_problem_of(config), images);
  check_form(model, options.form, input.folder);
  const auto plan = make_image_model(model.problem)->parameters({});
  const auto tensors = tensors_of(model, options.form, plan);
  ExportReport report{.checkpoint = input.folder,
                      .step = input.manifest.step,
                      .architecture = options.form == ExportForm::kTimm ? timm_architecture(model)
                                      : model.is_vit() ? "ViTForImageClassification"
                                                       : "ResNetForImageClassification",
                      .dtype = options.dtype.value_or(config.dtype()),
                      .is_image_model = true};
  ExportSource source(input.folder, input.manifest, report.dtype, options.weights);
  if (!model.is_vit()) source.take_last(running_statistics(plan));
  write_export(output, tensors, source, options, report, [&](const fs::path& folder) {
    write_beside(folder, input, model, options, report);
  });
  return report;
}

}  // namespace trireme::tasks
