#include "trireme/dataset/indexed_file_writer.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/file/atomic_file.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSequenceTokens = int64_t{1} << 30;  // lengths are int32 in the index
constexpr size_t kPendingBytes = size_t{1} << 20;
constexpr size_t kPendingLengths = size_t{1} << 16;

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Collects small values and writes them in blocks.
class BufferedOutput {
 public:
  explicit BufferedOutput(AtomicFile& file) : file_(file) { buffer_.reserve(kPendingBytes + 64); }

  template <typename T>
  void put(T value) {
    put(&value, sizeof(value));
  }
  void put(const void* data, size_t num_bytes) {
    const auto* bytes = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + num_bytes);
    if (buffer_.size() >= kPendingBytes) flush();
  }
  void flush() {
    file_.write(bytes_of(buffer_));
    buffer_.clear();
  }

 private:
  AtomicFile& file_;
  std::vector<char> buffer_;
};

}  // namespace

IndexedFileWriter::IndexedFileWriter(std::string prefix, int64_t vocab_size, TokenType type)
    : prefix_(std::move(prefix)), vocab_size_(vocab_size), type_(type) {
  try {
    bin_ = std::make_unique<AtomicFile>(bin_path(prefix_));
    idx_ = std::make_unique<AtomicFile>(idx_path(prefix_));
    lengths_ = std::make_unique<AtomicFile>(prefix_ + ".lengths");
  } catch (const Error& error) {
    throw ConfigError(concat("output ", prefix_, " is not writable: ", error.what(),
                             "; choose another --output"));
  }
}

IndexedFileWriter::~IndexedFileWriter() = default;

void IndexedFileWriter::add_document(std::span<const int32_t> tokens) {
  append(tokens);
  end_document();
}

void IndexedFileWriter::append(std::span<const int32_t> tokens) {
  TRIREME_ASSERT(!completed_, "the token file is complete");
  const int64_t token_bytes = token_type_bytes(type_);
  for (const int32_t token : tokens) {
    TRIREME_CHECK(token >= 0 && token < vocab_size_, "token ", token, " at position ", num_tokens_,
                  " is outside the vocabulary of ", vocab_size_);
    if (sequence_tokens_ == kMaxSequenceTokens) end_sequence(false);
    // Little-endian: the low bytes come first.
    const auto* bytes = reinterpret_cast<const std::byte*>(&token);
    pending_bin_.insert(pending_bin_.end(), bytes, bytes + token_bytes);
    ++sequence_tokens_;
    ++num_tokens_;
    if (pending_bin_.size() >= kPendingBytes) flush_tokens();
  }
}

void IndexedFileWriter::end_document() {
  end_sequence(true);
  ++num_documents_;
}

void IndexedFileWriter::end_sequence(bool end_of_document) {
  const auto length = static_cast<int32_t>(sequence_tokens_);
  pending_lengths_.push_back(end_of_document ? ~length : length);
  sequence_tokens_ = 0;
  ++num_sequences_;
  if (pending_lengths_.size() < kPendingLengths) return;
  lengths_->write(bytes_of(pending_lengths_));
  pending_lengths_.clear();
}

void IndexedFileWriter::flush_tokens() {
  bin_->write(bytes_of(pending_bin_));
  pending_bin_.clear();
}

void IndexedFileWriter::complete() {
  if (completed_) return;
  if (sequence_tokens_ > 0) end_document();
  flush_tokens();
  bin_->complete();
  lengths_->write(bytes_of(pending_lengths_));
  write_index();
  lengths_.reset();
  completed_ = true;
}

void IndexedFileWriter::write_index() {
  const MappedFile lengths(lengths_->temporary());
  const auto length = [&](int64_t i) {
    int32_t value;
    std::memcpy(&value, lengths.bytes().data() + i * sizeof(value), sizeof(value));
    return value;
  };
  BufferedOutput out(*idx_);
  out.put("MMIDIDX\0", 9);
  out.put<uint64_t>(1);
  out.put(static_cast<uint8_t>(type_));
  out.put<uint64_t>(num_sequences_);
  out.put<uint64_t>(num_documents_ + 1);
  for (int64_t i = 0; i < num_sequences_; ++i) out.put(std::max(length(i), ~length(i)));
  int64_t pointer = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    out.put(pointer);
    pointer += int64_t{std::max(length(i), ~length(i))} * token_type_bytes(type_);
  }
  out.put<int64_t>(0);
  for (int64_t i = 0; i < num_sequences_; ++i)
    if (length(i) < 0) out.put<int64_t>(i + 1);
  out.flush();
  idx_->complete();
}

void IndexedFileWriter::publish() {
  TRIREME_ASSERT(completed_, "publish() comes after complete()");
  // Without its index the old .bin is not a token file, so no reader pairs old with new files.
  std::error_code ignored;
  fs::remove(idx_path(prefix_), ignored);
  try {
    bin_->commit();
    idx_->commit();
  } catch (const Error& error) {
    throw ConfigError(concat("output ", prefix_, " is not writable: ", error.what(),
                             "; choose another --output"));
  }
}

void IndexedFileWriter::finish() {
  complete();
  publish();
}

}  // namespace trireme::dataset
