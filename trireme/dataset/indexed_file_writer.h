// Writes a token file (see indexed_file.h) in bounded memory. Tokens and sequence lengths go to
// disk as they come; finish() builds the index from the lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/dataset/indexed_file.h"

namespace trireme {
class AtomicFile;
class StreamedFile;
}  // namespace trireme

namespace trireme::dataset {

// Thread safety: one thread. Until publish() only temporary files exist, hidden and beside the
// final ones; the destructor removes them. Two writers with one prefix do not disturb each other,
// but a reader may find the tokens of one with the index of the other: hold a WorkFolder.
class IndexedFileWriter {
 public:
  // What has been written, for a writer that goes on with it in another process.
  struct Written {
    int64_t num_tokens = 0;
    int64_t num_documents = 0;
    int64_t num_sequences = 0;
    int64_t sequence_tokens = 0;  // of the sequence that has not ended
  };
  // Where the temporary files lie: PLACE.bin and PLACE.lengths, in a folder that nobody else
  // writes. They stay without publish().
  struct Continued {
    std::string place;
    Written written{};
  };

  // Throws: ConfigError when the files cannot be created
  IndexedFileWriter(std::string prefix, int64_t vocab_size)
      : IndexedFileWriter(std::move(prefix), vocab_size, token_type_for(vocab_size)) {}
  // type: wide enough for the vocabulary
  IndexedFileWriter(std::string prefix, int64_t vocab_size, TokenType type);
  // Throws: also Error when the files have less than was written
  IndexedFileWriter(std::string prefix, int64_t vocab_size, const Continued& continued);
  IndexedFileWriter(const IndexedFileWriter&) = delete;
  IndexedFileWriter& operator=(const IndexedFileWriter&) = delete;
  ~IndexedFileWriter();

  // Adds a document in one call, or in pieces.
  // Throws: ConfigError for a token outside [0, vocab_size); Error when the disk is full
  void add_document(std::span<const int32_t> tokens);
  void append(std::span<const int32_t> tokens);
  // The same for bytes, each of which is a token.
  // vocab_size: has 256 at least
  void append_bytes(std::string_view bytes);
  void end_document();

  int64_t num_documents() const { return written_.num_documents; }
  int64_t num_tokens() const { return written_.num_tokens; }

  // Brings what was added to the disk, for a Continued.
  // Throws: Error when the disk is full
  Written sync();

  // finish() = complete() + publish(). Several writers complete first and publish together.
  // complete() brings everything to the disk, under temporary names.
  void complete();
  // publish() renames the files, replacing existing ones; the index comes last.
  void publish();
  void finish();

 private:
  template <typename Token>
  void put(std::span<const Token> tokens);
  void end_sequence(bool end_of_document);
  void flush_lengths();
  void write_index();

  std::string prefix_;
  int64_t vocab_size_;
  TokenType type_;
  std::unique_ptr<AtomicFile> bin_;
  std::unique_ptr<AtomicFile> idx_;
  std::unique_ptr<AtomicFile> lengths_;   // int32 per sequence; ~length where a document ends
  std::unique_ptr<StreamedFile> tokens_;  // writes bin_
  std::vector<int32_t> pending_lengths_;
  Written written_{};
  bool completed_ = false;
};

}  // namespace trireme::dataset
