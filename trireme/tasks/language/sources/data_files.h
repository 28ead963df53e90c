// The token files that section [data] names, and what all of them must have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/blend/source_list.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/tasks/language/sources/token_data_config.h"

namespace trireme::tasks {

struct DataFiles {
  std::string key{};                           // that names them, such as "data.sources"
  std::vector<dataset::ListedSource> files{};  // of data.path: one, with the name ""
};

// For training: data.path, or data.sources.
// Throws: ConfigError when neither is set, or the list is not one
DataFiles training_files(const TokenDataConfig& data);

// For evaluation: data.validation_sets. When these are not set, the validation files beside those
// for training, under their names.
// place: where all of these are
// Throws: as training_files(); what `place` throws
DataFiles validation_files(const TokenDataConfig& data, const FilePlace& place = local_files());

// Where the data has a tokenizer, when all is well: the first prefix for training, or "".
std::string first_prefix(const TokenDataConfig& data);

// Explains prefixes on this machine to users who gave something else. Opening the files reports all
// other errors.
// Throws: ConfigError
void check_prefixes(const DataFiles& files);

// The tokenizer with which all of them were prepared. A file has it at its own prefix; validation
// files may have it at that of the data beside which they are.
// Throws: ConfigError when one has another or none
std::shared_ptr<const dataset::Tokenizer> shared_tokenizer(const DataFiles& training,
                                                           const DataFiles& validation,
                                                           const FilePlace& place = local_files());

// The chat template of those that have one; "" when none does.
// Throws: ConfigError when two differ
std::string shared_chat_template(const DataFiles& training, const FilePlace& place = local_files());

}  // namespace trireme::tasks
