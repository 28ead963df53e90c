// The files of weights of an export, whatever the model: safetensors, in one file or several with
// an index, or a checkpoint of torch.distributed.checkpoint.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/tasks/export/export_options.h"
#include "trireme/tasks/export/export_source.h"

namespace trireme::tasks {

// Writes the tensors to the folder `output`, which is new or empty, in report.dtype, and says so in
// the report. With kDcp these are all; otherwise write_beside adds the other files, once the report
// is whole. The folder appears at once and complete.
// Memory: 16 MiB of a tensor, 256 MiB of one that is transposed, or of any for kDcp
// Throws: as ExportSource::check() and read(); Error when it cannot be written; what write_beside
//         throws
void write_export(const std::filesystem::path& output,
                  std::span<const model::HuggingFaceTensor> tensors, ExportSource& source,
                  const ExportOptions& options, ExportReport& report,
                  const std::function<void(const std::filesystem::path& folder)>& write_beside);

}  // namespace trireme::tasks
