// The frozen teacher from which a language model learns (objective.name = "distill"): what its
// folder says of it. Its weights are read by the run (train/state/frozen_model.h).
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/model_config.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::tasks {

struct LanguageConfig;

inline constexpr const char* kTeacherKey = "objective.teacher";

struct Teacher {
  model::ModelConfig model;
  std::filesystem::path folder;  // a checkpoint, or a folder of transformers
};

// Finds the teacher that the keys of `student` name. tokenizer: of the student's data.
// Throws: ConfigError when there is no such folder, when the teacher is no model here, or has
//         another vocabulary, another tokenizer, or a shorter sequence; CheckpointError when it
//         cannot be read
std::shared_ptr<const Teacher> open_teacher(const LanguageConfig& student,
                                            const dataset::Tokenizer& tokenizer);

// Opens a file of its outputs instead.
// Throws: CheckpointError when it cannot be used
std::shared_ptr<const TeacherOutputs> open_outputs(const std::filesystem::path& path);

// What outputs must be of to be those of this run; without what is known of a teacher.
OutputsOrigin origin_of(const LanguageConfig& own, const train::DataIdentity& training,
                        const train::DataIdentity& validation);

// Checksums, whatever the path: of a checkpoint `manifest`, which has those of all tensors; of a
// folder of transformers `config`, and `weights` of each file of tensors its size and 64 places.
train::DataIdentity identify_teacher(const Teacher& teacher);

}  // namespace trireme::tasks
