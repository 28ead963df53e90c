// Parts of the module that reads files with Apache Arrow. Messages follow a path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/columns/text_column.h"

namespace trireme::dataset::arrow_parts {

[[noreturn]] inline void fail(const std::string& message) { throw std::runtime_error(message); }

// In one line: Arrow's messages may have several, and a trace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

inline void require(const arrow::Status& status, const char* what = " is damaged: ") {
  if (status.IsNotImplemented()) what = " has what Arrow cannot read: ";
  if (!status.ok()) fail(what + first_line(status.message()));
}

template <typename T>
T value_of(arrow::Result<T> result, const char* what = " is damaged: ") {
  require(result.status(), what);
  return std::move(result).ValueUnsafe();
}

inline std::string quoted(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 60)) text += c >= ' ' && c != 127 && c != '"' ? c : '?';
  return '"' + text + '"';
}

// Never freed: Arrow's threads for reading may give memory back behind the end of a column.
inline arrow::MemoryPool* pool() {
  static auto* const capped = new arrow::CappedMemoryPool(arrow::default_memory_pool(),
                                                          static_cast<int64_t>(kColumnMemoryBytes));
  return capped;
}

// A source as a file of Arrow's.
class SourceFile : public arrow::io::RandomAccessFile {
 public:
  explicit SourceFile(std::shared_ptr<const ByteSource> source) : source_(std::move(source)) {}

  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Result<int64_t> GetSize() override { return static_cast<int64_t>(source_->num_bytes()); }
  arrow::Status Seek(int64_t position) override {
    if (position < 0) return arrow::Status::Invalid("a position before the file");
    at_ = position;
    return arrow::Status::OK();
  }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, void* out) override {
    if (position < 0 || num_bytes < 0) return arrow::Status::Invalid("a part before the file");
    const int64_t size = static_cast<int64_t>(source_->num_bytes());
    const int64_t count = std::min(num_bytes, size - std::min(size, position));
    if (count == 0) return count;
    try {
      source_->read(static_cast<uint64_t>(position),
                    std::span(static_cast<std::byte*>(out), static_cast<size_t>(count)));
    } catch (const std::exception& error) {
      return arrow::Status::IOError(error.what());
    }
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t num_bytes) override {
    // Never more than there is: the number may come from a damaged file.
    const int64_t size = static_cast<int64_t>(source_->num_bytes());
    const int64_t most = std::clamp<int64_t>(num_bytes, 0, size);
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::ResizableBuffer> buffer,
                          arrow::AllocateResizableBuffer(most, pool()));
    ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(position, most, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(count));
    return buffer;
  }
  arrow::Result<int64_t> Read(int64_t num_bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(at_, num_bytes, out));
    at_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t num_bytes) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, ReadAt(at_, num_bytes));
    at_ += buffer->size();
    return buffer;
  }

 private:
  std::shared_ptr<const ByteSource> source_;
  int64_t at_ = 0;
  bool is_closed_ = false;
};

inline std::unique_ptr<parquet::arrow::FileReader> open_parquet(
    const std::shared_ptr<arrow::io::RandomAccessFile>& file, int64_t rows_at_once) {
  constexpr int64_t kPieceBytes = int64_t{256} << 10;
  parquet::ReaderProperties properties(pool());
  properties.enable_buffered_stream();  // a page at a time, not a whole chunk
  properties.set_buffer_size(kPieceBytes);
  properties.set_page_checksum_verification(true);
  parquet::ArrowReaderProperties of_arrow(/*use_threads=*/false);
  of_arrow.set_batch_size(rows_at_once);
  of_arrow.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  require(builder.Open(file, properties), ": ");
  builder.memory_pool(pool())->properties(of_arrow);
  return value_of(builder.Build());
}

}  // namespace trireme::dataset::arrow_parts
