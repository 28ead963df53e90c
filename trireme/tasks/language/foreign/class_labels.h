// The names of the classes of a run, in its folder, and as transformers' config.json has them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/labelled/class_names.h"

namespace trireme::tasks {

// The file of a run's folder with ClassNames::text().
inline constexpr const char* kClassesFile = "classes.json";

// Throws: ConfigError when there is none, or it is something else; what `place` throws
dataset::ClassNames read_classes(const std::filesystem::path& path,
                                 const FilePlace& place = local_files());

// The checksum of a text.
std::string checksum_of(std::string_view text);

// Checks that the weights in `folder`, a run, its checkpoint or a folder of transformers, have
// these classes in this order, as far as it names them: "LABEL_0" of transformers and numbers 0 to
// C - 1 name none.
// Throws: ConfigError with the first class that has another name
void require_same_classes(const std::filesystem::path& folder, const dataset::ClassNames& classes);

// The object `kept` of kept_keys(), "" for none, with id2label and label2id of the run that saved
// `checkpoint`, if it names its classes.
// Throws: ConfigError when its file is damaged
std::string with_labels(const std::filesystem::path& checkpoint, std::string kept);

}  // namespace trireme::tasks
