// The loop over files that sources of rows share, and its progress in bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

// A source of rows that lie in files, one file after the other.
class FileRows : public RowSource {
 public:
  void read(const std::function<void(Row)>& use) final;
  int64_t num_done() const final { return done_; }
  int64_t num_total() const final { return total_; }
  std::string unit() const final { return ""; }
  std::string left_out() const final { return ""; }

 protected:
  // What takes a row, and how many bytes of its file were read up to its end.
  using Use = std::function<void(Row row, int64_t num_read)>;

  void add_file(std::string path, int64_t num_bytes);
  // Gives the rows of a file that was added, the index-th. The path of a row is set by this class.
  virtual void read_file(size_t index, const std::string& path, const Use& use) = 0;

 private:
  struct File {
    std::string path{};
    int64_t num_bytes = 0;
  };
  std::vector<File> files_{};
  int64_t total_ = 0;
  int64_t done_ = 0;
};

}  // namespace trireme::dataset
