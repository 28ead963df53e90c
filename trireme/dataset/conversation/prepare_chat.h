// Turns conversations, or pairs of answers, into token files with a loss mask, for `trireme data
// prepare --format chat` and `--format preference`. Memory is bounded, however long the input. No
// file has its final name before everything is written.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

// What a line of the input is.
enum class ChatLines {
  kConversations,  // read_conversation(); a document each
  kPreferences,    // read_preference(); two documents each, the chosen answer's and the rejected's
};

struct PrepareChatOptions {
  ChatLines lines = ChatLines::kConversations;
  // Files of JSON lines, folders with *.jsonl, pipes; gzip and zstd too. Parquet and Arrow files,
  // of which a row is a line. URLs of these.
  std::vector<std::string> inputs{};
  std::shared_ptr<const FileStore> stores{};  // where URLs are; null: there may be none
  std::string tokenizer_model{};     // a tokenizer.json, or the model's folder; see ChatFormatFiles
  std::string chat_template{};       // a file; empty: the model's
  std::string end_of_document{};     // see ChatEncoder
  std::string output{};              // prefix of the files to write
  double validation_fraction = 0.0;  // of the conversations
  // Conversations may have images: see chat_images.h. 0: they have none.
  int64_t image_size = 0;
  int64_t patch_size = 14;
  std::string image_folder{};  // of paths that are not absolute; empty: that of the line's file
  uint64_t seed = 1;           // chooses them
  // The local time, for templates that print it.
  std::optional<std::chrono::local_seconds> now{};
};

struct ChatCounts {
  int64_t lines = 0;
  int64_t tokens = 0;
  int64_t trained_tokens = 0;  // that the loss mask has
  int64_t images = 0;
};

struct PrepareChatReport {
  ChatCounts training{};
  ChatCounts validation{};
  int64_t vocab_size = 0;
  int64_t longest_tokens = 0;  // the longest document
  int64_t untrained = 0;       // conversations in which the assistant says nothing
  bool is_marked = false;      // the template has {% generation %}
  int64_t num_bytes = 0;       // of the files as stored
};

// Writes what prepare() (prepare.h) does, a document for each conversation, the template, and with
// the same names behind loss_prefix() a loss mask: a byte for each token, kLearntToken if the
// assistant says it; of a preference, kLearntToken or kRejectedToken in the answer. The same input,
// options and seed give the same bytes. Whether a line is for validation depends only on (seed,
// file name, number in it).
// `progress`, if set, is called with (bytes done, total bytes).
// Throws: ConfigError with file and line for a conversation that cannot be used, and for every
//         option that the user can fix, or while another process prepares the same output; Error
//         when the disk fails
PrepareChatReport prepare_chat(const PrepareChatOptions& options,
                               const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace trireme::dataset
