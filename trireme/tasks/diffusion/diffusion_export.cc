#include "trireme/tasks/diffusion/diffusion_export.h"

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/diffusion/diffusers_config.h"
#include "trireme/tasks/diffusion/diffusers_weights.h"
#include "trireme/tasks/diffusion/diffusion.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/model_card.h"
#include "trireme/tasks/export/plain_export.h"
#include "trireme/tasks/export/weight_files.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

constexpr const char* kLoading =
    "from diffusers import DDIMScheduler, DiTTransformer2DModel\n\n"
    "model = DiTTransformer2DModel.from_pretrained(\"FOLDER\")\n"
    "scheduler = DDIMScheduler.from_pretrained(\"FOLDER\")\n";

}  // namespace

ExportReport export_diffusion_model(const std::filesystem::path& path,
                                    const std::filesystem::path& output,
                                    const ExportOptions& options) {
  const bool is_plain =
      options.form == ExportForm::kSafetensors || options.form == ExportForm::kDcp;
  if (is_plain) return export_plain(path, output, options);
  TRIREME_CHECK(options.form == ExportForm::kDiffusers, "--format is \"",
                name_of(kExportForms, options.form), "\", and ", path.string(),
                " is of a diffusion transformer; expected diffusers, safetensors or dcp");
  check_export(options);
  const ExportInput input(path, options);
  train::RunConfig config =
      train::parse_saved_model(input.state.config, input.folder.string(),
                               train::default_config(train::TaskTable(&kDiffusion, 1)));
  const DiffusionConfig& own = diffusion_of(config);
  model::validate(own.dit);
  ExportReport report{.checkpoint = input.folder,
                      .step = input.manifest.step,
                      .architecture = "DiTTransformer2DModel",
                      .dtype = options.dtype.value_or(config.dtype())};
  ExportSource source(input.folder, input.manifest, report.dtype, options.weights);
  const auto write_beside = [&](const std::filesystem::path& folder) {
    write_file_atomically(folder / "config.json", diffusers_config(own.dit));
    write_file_atomically(folder / "scheduler_config.json", diffusers_scheduler(own.noise));
    write_file_atomically(folder / kCardFile,
                          to_markdown({.title = "diffusion transformer",
                                       .library = "diffusers",
                                       .license = options.license,
                                       .facts = facts_of(input, "dit", options, report),
                                       .loading = kLoading}));
  };
  write_export(output, diffusers_tensors(own.dit), source, options, report, write_beside);
  return report;
}

}  // namespace trireme::tasks
