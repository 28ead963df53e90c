// The files of rows from which a preparation makes token files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/folder.h"
#include "trireme/dataset/text/documents.h"

namespace trireme::dataset {

// Throws: ConfigError for a fraction outside [0, 1), or an output that is no prefix
void check_row_options(const std::string& output, double validation_fraction);

struct RowFiles {
  std::vector<std::string> inputs{};
  std::vector<std::string> globs{};  // of files in folders; none = those named as JSON lines are
  std::vector<std::string> excludes{};
  bool may_be_columns = false;  // without globs, of folders also the Parquet and Arrow files
  // What an earlier preparation left of its work. Removed anyway when an input is a pipe, whose
  // copy is new each time.
  WorkFolder::Left left = WorkFolder::Left::kRemoved;
  std::shared_ptr<const FileStore> stores{};  // where URLs are; null: there may be none
};

// The files of the inputs, of folders those that match. Makes the folder of the output and `work`,
// which keeps another preparation away from this output.
// Throws: as find_documents() and keep_pipes()
std::vector<Document> find_row_files(const RowFiles& rows, const std::string& output,
                                     std::optional<WorkFolder>& work);

}  // namespace trireme::dataset
