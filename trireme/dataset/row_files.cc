#include "trireme/dataset/row_files.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/dataset/token_files.h"

namespace trireme::dataset {

void check_row_options(const std::string& output, double validation_fraction) {
  TRIREME_CHECK(validation_fraction >= 0 && validation_fraction < 1, "validation_fraction is ",
                validation_fraction, ", expected at least 0 and below 1");
  TRIREME_CHECK(!output.empty() && output.back() != '/', "output is \"", output,
                "\", expected a prefix of file names such as data/chat");
}

std::vector<Document> find_row_files(const RowFiles& rows, const std::string& output,
                                     std::optional<WorkFolder>& work) {
  DocumentOptions wanted = {.inputs = rows.inputs,
                            .globs = rows.globs,
                            .excludes = rows.excludes,
                            .ignored = prepared_paths(output),
                            .as_text = true,
                            .stores = rows.stores};
  if (wanted.globs.empty()) {
    for (const char* const name : {"*.jsonl", "*.ndjson"}) {
      for (const char* const packed : {"", ".gz", ".zst"})
        wanted.globs.push_back(concat(name, packed));
    }
    // Large collections use this name; a .json that is not compressed is mostly one object.
    wanted.globs.insert(wanted.globs.end(), {"*.json.gz", "*.json.zst"});
    if (rows.may_be_columns)
      wanted.globs.insert(wanted.globs.end(), {"*.parquet", "*.arrow", "*.feather"});
  }
  std::vector<Document> files = find_documents(wanted);
  make_prefix_folder(output);
  const bool has_pipes = std::ranges::any_of(files, &Document::is_pipe);
  work.emplace(output, has_pipes ? WorkFolder::Left::kRemoved : rows.left);
  keep_pipes(files, wanted, work->path());
  return files;
}

}  // namespace trireme::dataset
