#include "trireme/dataset/recommend/record_writer.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kRecordsAtOnce = size_t{1} << 20;

}  // namespace

RecordWriter::RecordWriter(const std::filesystem::path& path, size_t record_bytes)
    : file_(path), record_bytes_(record_bytes) {}

std::span<std::byte> RecordWriter::next() {
  if (records_.size() >= kRecordsAtOnce) flush();
  records_.resize(records_.size() + record_bytes_);
  ++num_records_;
  return std::span(records_).last(record_bytes_);
}

void RecordWriter::flush() {
  file_.write(records_.data(), records_.size());
  records_.clear();
}

int64_t RecordWriter::finish() {
  flush();
  file_.sync();
  file_.close();
  return num_records_;
}

}  // namespace trireme::dataset::inline internal
