#include "trireme/dataset/file/npy_writer.h"

#include "trireme/base/error.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kBytesAtOnce = size_t{1} << 20;

}  // namespace

NpyWriter::NpyWriter(const std::filesystem::path& path, NpyType type, int64_t rows, int64_t columns)
    : file_(path),
      bytes_(make_npy_header(type, rows, columns)),
      row_bytes_(static_cast<size_t>(columns) * item_bytes(type)),
      rows_left_(rows) {}

void NpyWriter::add(std::span<const std::byte> row) {
  TRIREME_ASSERT(row.size() == row_bytes_ && rows_left_ > 0, "a row of ", row.size(), " bytes, ",
                 rows_left_, " rows before the end");
  --rows_left_;
  bytes_.append(reinterpret_cast<const char*>(row.data()), row.size());
  if (bytes_.size() >= kBytesAtOnce) flush();
}

void NpyWriter::flush() {
  file_.write(bytes_);
  num_bytes_ += std::ssize(bytes_);
  bytes_.clear();
}

int64_t NpyWriter::finish() {
  TRIREME_ASSERT(rows_left_ == 0, rows_left_, " rows are missing");
  flush();
  file_.commit();
  return num_bytes_;
}

}  // namespace trireme::dataset::inline internal
