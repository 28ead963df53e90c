// The files that data preparation leaves under a prefix: token files for training and validation,
// loss masks beside them, the tokenizer, and the chat template of conversations. They appear
// together, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/indexed_file_writer.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

// All of them, whether they are there or not.
std::vector<std::filesystem::path> prepared_paths(const std::string& prefix);

// PREFIX.chat_template.jinja
std::filesystem::path chat_template_path(const std::string& prefix);

// Makes the folder that the prefix names.
// Throws: ConfigError when it cannot be made
void make_prefix_folder(const std::string& prefix);

// A token file and, if it has one, its loss mask.
class TokenFile {
 public:
  // Throws: as IndexedFileWriter
  TokenFile(const std::string& prefix, int64_t vocab_size, bool has_mask);

  IndexedFileWriter& tokens() { return tokens_; }
  // Adds a document and its mask, a byte for each token (token_stream.h). Only with a mask.
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> mask);
  void complete();
  // The mask comes first, because a reader without it would train on every token.
  void publish();

 private:
  IndexedFileWriter tokens_;
  std::optional<IndexedFileWriter> mask_;
};

// Completes the files, removes those that an earlier preparation left, saves tokenizer and template
// and gives all their names.
// validation:    null without validation data
// chat_template: empty when there is none
void publish_token_files(const std::string& prefix, const Tokenizer& tokenizer, TokenFile& training,
                         TokenFile* validation, std::string_view chat_template = {});

}  // namespace trireme::dataset
