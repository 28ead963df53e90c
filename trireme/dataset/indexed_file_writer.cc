#include "trireme/dataset/indexed_file_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/atomic_file.h"
#include "trireme/base/file/file.h"
#include "trireme/base/io/streamed_file.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSequenceTokens = int64_t{1} << 30;  // lengths are int32 in the index
constexpr size_t kPendingBytes = size_t{256} << 10;       // of an index
constexpr size_t kPendingLengths = size_t{1} << 16;

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Whether all lie in [0, vocab_size). Compares without a branch, for several at once.
bool are_tokens(std::span<const int32_t> tokens, int64_t vocab_size) {
  const auto last = static_cast<uint32_t>(std::min<int64_t>(vocab_size - 1, INT32_MAX));
  uint32_t bits = 0;
  for (const int32_t token : tokens) {
    const auto value = static_cast<uint32_t>(token);
    bits |= value | (last - value);
  }
  return (bits >> 31) == 0;
}

// Little-endian: the low bytes come first.
template <typename T, typename Token>
void write_as(std::span<const Token> tokens, std::byte* out) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto value = static_cast<T>(tokens[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename Token>
void write_tokens(std::span<const Token> tokens, TokenType type, std::byte* out) {
  switch (token_type_bytes(type)) {
    case 1: return write_as<uint8_t>(tokens, out);
    case 2: return write_as<uint16_t>(tokens, out);
    case 4: return write_as<int32_t>(tokens, out);
    default: return write_as<int64_t>(tokens, out);
  }
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
    tokens_ = std::make_unique<StreamedFile>(bin_->temporary());
  } catch (const Error& error) {
    throw ConfigError(concat("output ", prefix_, " is not writable: ", error.what(),
                             "; choose another --output"));
  }
}

IndexedFileWriter::IndexedFileWriter(std::string prefix, int64_t vocab_size,
                                     const Continued& continued)
    : prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      type_(token_type_for(vocab_size)),
      written_(continued.written) {
  const auto open = [&](const std::string& name, const char* ending, int64_t num_bytes) {
    return std::make_unique<AtomicFile>(
        name, AtomicFile::Continued{continued.place + ending, static_cast<uint64_t>(num_bytes)});
  };
  const int64_t token_bytes = written_.num_tokens * token_type_bytes(type_);
  bin_ = open(bin_path(prefix_), ".bin", token_bytes);
  tokens_ = std::make_unique<StreamedFile>(bin_->temporary(), static_cast<uint64_t>(token_bytes));
  lengths_ = open(prefix_ + ".lengths", ".lengths",
                  written_.num_sequences * static_cast<int64_t>(sizeof(int32_t)));
  idx_ = std::make_unique<AtomicFile>(idx_path(prefix_));
}

IndexedFileWriter::~IndexedFileWriter() = default;

void IndexedFileWriter::add_document(std::span<const int32_t> tokens) {
  append(tokens);
  end_document();
}

void IndexedFileWriter::append(std::span<const int32_t> tokens) {
  if (!are_tokens(tokens, vocab_size_)) {
    const auto bad = std::ranges::find_if(
        tokens, [&](int32_t token) { return token < 0 || token >= vocab_size_; });
    throw ConfigError(concat("token ", *bad, " at position ",
                             written_.num_tokens + (bad - tokens.begin()),
                             " is outside the vocabulary of ", vocab_size_));
  }
  put(tokens);
}

void IndexedFileWriter::append_bytes(std::string_view bytes) {
  TRIREME_ASSERT(vocab_size_ > UINT8_MAX, "bytes as tokens of a vocabulary of ", vocab_size_);
  put(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

template <typename Token>
void IndexedFileWriter::put(std::span<const Token> tokens) {
  TRIREME_ASSERT(!completed_, "the token file is complete");
  const auto token_bytes = static_cast<size_t>(token_type_bytes(type_));
  while (!tokens.empty()) {
    if (written_.sequence_tokens == kMaxSequenceTokens) end_sequence(false);
    const std::span<std::byte> room = tokens_->room();
    const size_t count =
        std::min({tokens.size(), room.size() / token_bytes,
                  static_cast<size_t>(kMaxSequenceTokens - written_.sequence_tokens)});
    write_tokens(tokens.first(count), type_, room.data());
    tokens_->advance(count * token_bytes);
    tokens = tokens.subspan(count);
    written_.sequence_tokens += static_cast<int64_t>(count);
    written_.num_tokens += static_cast<int64_t>(count);
  }
}

void IndexedFileWriter::end_document() {
  end_sequence(true);
  ++written_.num_documents;
}

void IndexedFileWriter::end_sequence(bool end_of_document) {
  const auto length = static_cast<int32_t>(written_.sequence_tokens);
  pending_lengths_.push_back(end_of_document ? ~length : length);
  written_.sequence_tokens = 0;
  ++written_.num_sequences;
  if (pending_lengths_.size() >= kPendingLengths) flush_lengths();
}

void IndexedFileWriter::flush_lengths() {
  lengths_->write(bytes_of(pending_lengths_));
  pending_lengths_.clear();
}

IndexedFileWriter::Written IndexedFileWriter::sync() {
  flush_lengths();
  tokens_->sync();
  lengths_->sync();
  return written_;
}

void IndexedFileWriter::complete() {
  if (completed_) return;
  if (written_.sequence_tokens > 0) end_document();
  tokens_->flush();
  tokens_.reset();
  bin_->complete();
  flush_lengths();
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
  out.put<uint64_t>(written_.num_sequences);
  out.put<uint64_t>(written_.num_documents + 1);
  for (int64_t i = 0; i < written_.num_sequences; ++i) out.put(std::max(length(i), ~length(i)));
  int64_t pointer = 0;
  for (int64_t i = 0; i < written_.num_sequences; ++i) {
    out.put(pointer);
    pointer += int64_t{std::max(length(i), ~length(i))} * token_type_bytes(type_);
  }
  out.put<int64_t>(0);
  for (int64_t i = 0; i < written_.num_sequences; ++i)
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
