// Exports a checkpoint as a folder that Hugging Face's transformers loads: weights, config.json and
// the tokenizer; or only the same weights, as safetensors or as a checkpoint of
// torch.distributed.checkpoint. The same code serves every layout, because it reads global tensors,
// wherever their pieces are.
#pragma once

#include <filesystem>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// The names of earlier versions.
using HuggingFaceExport = ExportReport;
using HuggingFaceExportOptions = ExportOptions;

// Exports the newest checkpoint that find_checkpoint() finds at `path` to the folder `output`. What
// came with an imported model goes out with it, unless the run has another tokenizer. The
// folder appears at once and complete. A kill leaves ".<name>.tmp" beside it, which the next export
// to it removes. Omits the optimizer's states, but uses its fp32 weights if `dtype` differs from
// the run's.
// Memory: 16 MiB of a tensor, 256 MiB of one that is transposed or of any for kDcp; up to three
//         times that where it is converted and transposed
// Throws: CheckpointError when the checkpoint lacks a tensor, has one of another shape, or a
//         checksum is wrong; ConfigError when `output` is neither new nor empty, or a value is too
//         large for the dtype; Error when it cannot be written
ExportReport export_to_hugging_face(const std::filesystem::path& path,
                                    const std::filesystem::path& output,
                                    const ExportOptions& options = {});

}  // namespace trireme::tasks
