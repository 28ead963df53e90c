// The model that a Hugging Face transformers folder describes, and the source of its tensors.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/model_config.h"

namespace trireme::tasks {

// Whether the folder has a config.json, which transformers writes and no run does.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// The contents of a config.json and the tensors beside it.
struct ForeignModel {
  model::HuggingFaceModel model;
  std::string source;  // of the keys, for messages
  std::unique_ptr<checkpoint::TensorSource> tensors;
};

// config: a config.json; empty: the one in the folder `source`. Without any the keys of the model
// say what it is. Where tensors and keys disagree, transformers' choice holds, and a note says so:
// a head that is stored and is not the embedding is a head, whatever tie_word_embeddings says.
// Memory: two copies of the embedding, if a tied head is stored beside it
// Throws: ConfigError when the keys say something that no model here is; CheckpointError when the
//         tensors cannot be opened
ForeignModel open_foreign_model(const std::filesystem::path& source,
                                std::filesystem::path config = {});

// Throws: ConfigError with the first key of [model] that is not what config.json says. A shorter
//         sequence may differ, and keys that do not change what the weights compute
void require_same_model(const ForeignModel& foreign, const model::ModelConfig& config);

// The dtype that holds every value of the tensors opened at `path`.
// Throws: CheckpointError when they have none that a model can have
c10::ScalarType stored_dtype(const std::filesystem::path& path,
                             const checkpoint::TensorSource& source);

// Lines for people: model.notes, and one when values of the tensors are rounded to `dtype`, with
// the option that keeps them.
std::vector<std::string> notes_on(const ForeignModel& foreign, c10::ScalarType dtype,
                                  const char* option);

// A model's tensors under the names that it gave them. Wrappers of modules add parts to the names
// (torch.compile "_orig_mod", FSDP "_fsdp_wrapped_module", DDP "module"), and trainers save the
// whole below a name of their own ("model", "state_dict", "app.model").

// Opens `path` and finds the model in it by its token embedding. Adds a line to `notes` when parts
// of names are left out, or tensors that are not below the model's name.
// Throws: as open_tensors(); CheckpointError when there are several models, or two tensors have one
//         name without their wrappers
std::unique_ptr<checkpoint::TensorSource> open_unwrapped(const std::filesystem::path& path,
                                                         std::vector<std::string>& notes);

}  // namespace trireme::tasks
