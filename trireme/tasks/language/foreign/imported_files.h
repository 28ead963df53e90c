// The files beside another program's weights: config.json, the tokenizer's, the chat template, what
// generation is to do. A run keeps them for its export in its folder, each named "hugging_face."
// and its own name, and they are copied from run to run with the weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::tasks {

// The names that they have in a run's folder, whether they are there or not.
std::vector<std::string> imported_file_names();

// Copies those that are in `source`, a folder of transformers, into the folder of a run.
// config: the config.json of the weights, in `source` or elsewhere; empty: none
// Throws: Error when one cannot be read or written
void keep_imported_files(const std::filesystem::path& source, const std::filesystem::path& config,
                         const std::filesystem::path& run);

// Copies them from the run that saved the checkpoint `weights`, or keeps those of `weights`, a
// folder of transformers.
// Throws: Error when one cannot be read or written
void take_imported_files(const std::filesystem::path& weights, const std::filesystem::path& run);

// Keeps the chat template of a run's data, a file of `place` that may be missing, unless one was
// imported.
// Throws: Error when it cannot be read or written
void keep_chat_template(const std::string& chat_template, const FilePlace& place,
                        const std::filesystem::path& run);

// Reads what a run has kept. A run that was not imported has kept nothing.
class ImportedFiles {
 public:
  // The run that saved `checkpoint`.
  explicit ImportedFiles(const std::filesystem::path& checkpoint);

  bool has(const std::string& name) const;
  // Of the paths of the files: what stands before their own names.
  std::string prefix() const { return path_of("").string(); }
  // The text of config.json; "": there is none.
  std::string config() const;
  // Whether `tokenizer`, null or the one of the run, is the imported model's: then its token ids
  // and its chat template have their meaning. True when no tokenizer was imported.
  bool belong_to(const dataset::Tokenizer* tokenizer) const;
  bool has_tokenizer() const;
  // The tokens that end a generated text, by generation_config.json, or else config.json. Those
  // outside the vocabulary are left out.
  // Throws: ConfigError when the file is damaged
  std::vector<int64_t> end_tokens(int64_t vocab_size) const;
  // Writes all but config.json, under their own names, and returns these.
  std::vector<std::string> write_to(const std::filesystem::path& folder) const;

 private:
  std::filesystem::path path_of(const std::string& name) const;

  std::filesystem::path run_;
};

// The first file there that a kind of this program reads: tokenizer.model or tokenizer.json. Null
// when there is none, or, with the reason in `problem`, when none can be used.
// vocab_size: of the model, which may have more rows
std::unique_ptr<dataset::Tokenizer> read_foreign_tokenizer(const std::filesystem::path& folder,
                                                           int64_t vocab_size,
                                                           std::string& problem);

// Compares two tokenizers by a text of many scripts: "token 3 of a test text is 17 in the data and
// 29 there", or "" when all tokens are the same.
std::string differing_token(const dataset::Tokenizer& theirs, const dataset::Tokenizer& data);

// Compares the folder's tokenizer, if it has one that can be read, with that of the data:
// tokens that mean something else would make noise of the weights.
// Throws: ConfigError with differing_token()
void require_tokenizer_of(const std::filesystem::path& folder, int64_t vocab_size,
                          const dataset::Tokenizer& data);

}  // namespace trireme::tasks
