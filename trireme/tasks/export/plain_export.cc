#include "trireme/tasks/export/plain_export.h"

#include <set>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/model_card.h"
#include "trireme/tasks/export/weight_files.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

bool is_state(const std::string& name) {
  return name.starts_with(train::kOptimizerPrefix) || name.starts_with(train::kCallbackPrefix);
}

std::vector<model::HuggingFaceTensor> weights_of(const checkpoint::Manifest& manifest) {
  std::vector<model::HuggingFaceTensor> tensors;
  for (const auto& [name, record] : manifest.tensors) {
    if (is_state(name) || !c10::isFloatingType(record.dtype)) continue;
    tensors.push_back({.name = name, .shape = record.shape, .parts = {name}});
  }
  return tensors;
}

// Those of which the checkpoint has no average.
std::set<std::string> without_average(const checkpoint::Manifest& manifest,
                                      const std::vector<model::HuggingFaceTensor>& tensors) {
  std::set<std::string> names;
  for (const model::HuggingFaceTensor& tensor : tensors) {
    if (!manifest.tensors.contains(train::tensor_of(tensor.name, train::Weights::kAverage)))
      names.insert(tensor.name);
  }
  return names;
}

c10::ScalarType widest_dtype(const checkpoint::Manifest& manifest) {
  for (const auto& [name, record] : manifest.tensors) {
    if (!is_state(name) && record.dtype == c10::ScalarType::Double) return record.dtype;
  }
  return c10::ScalarType::Float;
}

}  // namespace

ExportReport export_plain(const fs::path& path, const fs::path& output,
                          const ExportOptions& options) {
  check_export(options);
  const ExportInput input(path, options);
  const std::string task = train::saved_task_name(input.state.config, input.folder.string());
  TRIREME_CHECK(options.form == ExportForm::kSafetensors || options.form == ExportForm::kDcp,
                "--format is \"", name_of(kExportForms, options.form), "\", and ",
                input.folder.string(), " is of the task ", shown(task),
                ", whose models other programs have no class for; use safetensors or dcp");
  const auto tensors = weights_of(input.manifest);
  TRIREME_CHECK(!tensors.empty(), input.folder.string(), " has no weights");
  ExportReport report{.checkpoint = input.folder,
                      .step = input.manifest.step,
                      .architecture = task,
                      .dtype = options.dtype.value_or(widest_dtype(input.manifest))};
  ExportSource source(input.folder, input.manifest, report.dtype, options.weights);
  source.take_last(without_average(input.manifest, tensors));
  write_export(output, tensors, source, options, report, [&](const fs::path& folder) {
    write_file_atomically(folder / train::kConfigName, input.state.config);
    write_file_atomically(
        folder / kCardFile,
        to_markdown({.title = concat("model of the task ", task),
                     .license = options.license,
                     .facts = facts_of(input, task, options, report),
                     .loading = "from safetensors.torch import load_file\n\n"
                                "weights = load_file(\"FOLDER/model.safetensors\")\n"}));
  });
  return report;
}

}  // namespace trireme::tasks
