// A token file: Megatron's indexed dataset, PREFIX.bin (tokens) and PREFIX.idx (where each sequence
// and document lies). Byte offsets: docs/design/token-files.md. Reads it in place: opening copies
// nothing, and the ranks of a host share the page cache. An index in a store, of at most
// kMostKeptIndexBytes, is read once and kept in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

// PREFIX.bin and PREFIX.idx.
std::filesystem::path bin_path(const std::string& prefix);
std::filesystem::path idx_path(const std::string& prefix);

// How a token is stored. The values are Megatron's codes in the .idx file.
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8
};
int token_type_bytes(TokenType type);
// Megatron's choice: uint16 below 65500 tokens, int32 from there on.
TokenType token_type_for(int64_t vocab_size);

inline constexpr uint64_t kMostKeptIndexBytes = uint64_t{256} << 20;

// Thread safe: nothing changes after construction. Spans and offsets count tokens.
class IndexedFile {
 public:
  // place: where the prefix is; needed only in here
  // Throws: ConfigError (one line, with the path) when a file is missing, empty, truncated or of
  //         another format, or when its numbers contradict each other or the size of the .bin file;
  //         what `place` throws
  explicit IndexedFile(const std::string& prefix, const FilePlace& place = local_files());
  // The same; null when neither of the two files is there. One without the other is an error.
  static std::shared_ptr<const IndexedFile> find(const std::string& prefix, const FilePlace& place);

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return type_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }

  // A document's place in the stream of all tokens.
  struct Extent {
    int64_t offset = 0;
    int64_t size = 0;
    bool operator==(const Extent&) const = default;
  };
  Extent document(int64_t index) const;
  // The document that contains token `offset` of the stream.
  int64_t document_at(int64_t offset) const;

  // The number of tokens of every document, in their order: 8 bytes of memory each.
  // Throws: ConfigError with the path when the index has changed since it was opened
  std::vector<int64_t> document_sizes() const;
  // Whether the other file has as many documents, each with as many tokens in the same sequences.
  bool has_documents_of(const IndexedFile& other) const;

  // The checksum of the whole .idx file (base/file/file.h). Reads it.
  // Throws: as document_sizes()
  std::string index_checksum() const;

  // Copies tokens [offset, offset + out.size()) of the stream of all documents into `out`.
  // Throws: ConfigError with the path when a file has changed since it was opened; so do the three
  //         above
  void read(int64_t offset, std::span<int64_t> out) const;

 private:
  using File = std::unique_ptr<const ByteSource>;
  // Null: there is none.
  IndexedFile(const std::string& prefix, File idx, File bin);
  // Entry `index` of the table of T that begins at byte `table` of the .idx file.
  template <typename T>
  T number(uint64_t table, int64_t index) const;
  // The start of sequence `index`, which may be num_sequences().
  int64_t sequence_offset(int64_t index) const;
  void read_header();
  void check_sequences() const;
  void check_documents();

  std::string prefix_;
  // Read, not mapped, because others may write to them during a run.
  File idx_;
  File bin_;
  TokenType type_ = TokenType::kUint16;
  int64_t num_tokens_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  // Start of the three tables in the .idx file.
  uint64_t lengths_ = 0;    // int32 [num_sequences]
  uint64_t pointers_ = 0;   // int64 [num_sequences]
  uint64_t documents_ = 0;  // int64 [num_documents + 1]
  // The start of every kBlock-th document, so that a search reads the file only within one block.
  static constexpr int64_t kBlock = 512;
  std::vector<int64_t> block_offsets_;
};

}  // namespace trireme::dataset
