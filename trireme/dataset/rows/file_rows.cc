#include "trireme/dataset/rows/file_rows.h"

#include <utility>

namespace trireme::dataset {

void FileRows::add_file(std::string path, int64_t num_bytes) {
  total_ += num_bytes;
  files_.push_back({std::move(path), num_bytes});
}

void FileRows::read(const std::function<void(Row)>& use) {
  done_ = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    const int64_t before = done_;
    read_file(i, files_[i].path, [&](Row row, int64_t num_read) {
      row.path = files_[i].path;
      use(std::move(row));
      done_ = before + num_read;
    });
    done_ = before + files_[i].num_bytes;
  }
}

}  // namespace trireme::dataset
