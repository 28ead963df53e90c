// The files of weights of an export, whatever the model: safetensors, in one file or several with
// an index, or a checkpoint of torch.distributed.checkpoint.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/tasks/export/export_options.h"
#include "trireme/tasks/export/export_source.h"

namespace trireme::tasks {

// Checks that the source has every tensor, and counts them in the report.
// Throws: as ExportSource::check()
void count_tensors(std::span<const model::HuggingFaceTensor> tensors, const ExportSource& source,
                   ExportReport& report);

// Writes the tensors into a folder that exists, in report.dtype, and names the files in the report.
// Memory: 16 MiB of a tensor, 256 MiB of one that is transposed
// Throws: as ExportSource::read(); Error when it cannot be written
void write_weight_files(const std::filesystem::path& folder,
                        std::span<const model::HuggingFaceTensor> tensors, ExportSource& source,
                        int64_t max_shard_bytes, ExportReport& report);

// The same as a checkpoint of torch.distributed.checkpoint, in a folder that is new or empty.
// Memory: 256 MiB
void write_dcp_weights(const std::filesystem::path& folder,
                       std::span<const model::HuggingFaceTensor> tensors, ExportSource& source,
                       ExportReport& report);

}  // namespace trireme::tasks
