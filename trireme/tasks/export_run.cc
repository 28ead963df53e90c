#include "trireme/tasks/export_run.h"

#include <string>

#include "trireme/tasks/diffusion/diffusion.h"
#include "trireme/tasks/diffusion/diffusion_export.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/plain_export.h"
#include "trireme/tasks/language/hugging_face_export.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/recommend_export.h"
#include "trireme/tasks/vision/image_export.h"
#include "trireme/tasks/vision/vision.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

ExportReport export_run(const std::filesystem::path& path, const std::filesystem::path& output,
                        ExportOptions options, std::optional<ExportForm>& form) {
  const ExportInput input(path, options);
  std::string task = train::saved_task_name(input.state.config, input.folder.string());
  if (task.empty()) task = kLanguage.name;  // of earlier versions
  const bool has_class = task == kLanguage.name || task == kVision.name;
  if (!form) {
    form = has_class                 ? ExportForm::kHuggingFace
           : task == kDiffusion.name ? ExportForm::kDiffusers
                                     : ExportForm::kSafetensors;
  }
  options.form = *form;
  if (task == kLanguage.name) return export_to_hugging_face(path, output, options);
  if (task == kVision.name) return export_image_model(path, output, options);
  if (task == kRecommend.name) return export_recommend_model(path, output, options);
  if (task == kDiffusion.name) return export_diffusion_model(path, output, options);
  return export_plain(path, output, options);
}

}  // namespace trireme::tasks
