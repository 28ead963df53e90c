// Turns the texts of a source into token files, and goes on where a process was interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/bounded_json.h"
#include "trireme/base/file/digest.h"
#include "trireme/dataset/file/journal.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/text/digest_set.h"
#include "trireme/dataset/text/documents.h"
#include "trireme/dataset/text/text_source.h"
#include "trireme/dataset/token_files.h"

namespace trireme::dataset {

// Stands for all that decides which tokens a preparation writes: options, files with their sizes
// and times, and the given tokenizer's content.
// Throws: Error when a file cannot be read
Digest identity_of(const PrepareOptions& options, const std::vector<Document>& training,
                   const std::vector<Document>& validation = {});

// The BPE model that train() makes, or that an interrupted preparation made.
std::string kept_model(const PreparationPlace& place, const std::function<std::string()>& train);

// The tokens of a batch of texts go to the disk with a journal of one line, every
// PrepareOptions::journal_bytes. A preparation of the same identity that finds it in its folder
// goes on behind that batch: it reads the source up to there, but encodes nothing again.
class Preparation {
 public:
  // options, tokenizer: outlive this
  // Throws: as IndexedFileWriter
  Preparation(const PrepareOptions& options, const Tokenizer& tokenizer, bool has_validation,
              const PreparationPlace& place);

  // progress: see prepare()
  void encode_all(TextSource& source, const std::function<void(int64_t, int64_t)>& progress);

  // Gives the files their names. Throws: as publish_token_files()
  void publish();
  PrepareReport report();

 private:
  struct EncodedTexts;
  // How far it is, beside the tokens that are written.
  struct Progress {
    int64_t batches = 0;  // of the source
    PrepareReport counts{};
    bool begins = true;        // whether the next piece is the first of its document
    bool is_repeated = false;  // this document
  };

  void go_on(const JsonView& root);
  void read_digests(int64_t count);
  void append_digests();
  void keep_progress();
  void open_files(const IndexedFileWriter::Written& training,
                  const IndexedFileWriter::Written& validation);
  EncodedTexts encode(TextBatch batch) const;
  void add(const EncodedTexts& texts, size_t index);

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  bool has_validation_;
  PreparationPlace place_;
  Progress progress_{};
  std::optional<TokenFile> training_{};
  std::optional<TokenFile> validation_{};
  std::optional<DigestSet> seen_{};    // texts of rows, to leave out those that come again
  std::vector<Digest> new_digests_{};  // not in the journal yet
  int64_t num_digests_ = 0;            // in the journal
  int64_t journal_bytes_ = 0;          // of text, when the journal was written
};

}  // namespace trireme::dataset
