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

// PREFIX.classes.json: the classes of labelled texts, as labelled/class_names.h writes them.
std::filesystem::path classes_path(const std::string& prefix);

// What a token file has beside its tokens.
struct FilesBeside {
  bool mask = false;    // a loss mask
  bool images = false;  // their pixels, [3, S, S] uint8 each
  int64_t classes = 0;  // between which the labels of its documents decide; 0: there are none
};

// A token file, and the files beside it.
class TokenFile {
 public:
  // Throws: as IndexedFileWriter
  TokenFile(const std::string& prefix, int64_t vocab_size, const FilesBeside& beside = {});

  // Without files beside it.
  TokenFile(const std::string& prefix, int64_t vocab_size,
            const IndexedFileWriter::Continued& continued)
      : tokens_(prefix, vocab_size, continued) {}

  IndexedFileWriter& tokens() { return tokens_; }
  // Adds a document and its mask, a byte for each token (token_stream.h). Only with a mask.
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> mask);
  // Adds an image of the next document. Only with images.
  void add_image(std::span<const int32_t> pixels);
  // Adds a document and its label. Only with labels.
  void add_labelled(std::span<const int32_t> tokens, int32_t label);
  void complete();
  // The files beside it come first, because a reader without them would train on every token.
  void publish();

 private:
  IndexedFileWriter tokens_;
  std::optional<IndexedFileWriter> mask_;
  std::optional<IndexedFileWriter> images_;
  std::optional<IndexedFileWriter> labels_;
};

// The texts of files beside the tokens; empty: there is no such file.
struct TextsBeside {
  std::string_view chat_template{};
  std::string_view classes{};
};

// Completes the files, removes those that an earlier preparation left, saves tokenizer and texts
// and gives all their names.
// validation: null without validation data
void publish_token_files(const std::string& prefix, const Tokenizer& tokenizer, TokenFile& training,
                         TokenFile* validation, const TextsBeside& beside = {});

}  // namespace trireme::dataset
