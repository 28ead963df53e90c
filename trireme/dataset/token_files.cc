#include "trireme/dataset/token_files.h"

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaskValues = 3;  // 0, kLearntToken, kRejectedToken

// The prefixes of all files with tokens or masks.
std::vector<std::string> all_prefixes(const std::string& prefix) {
  const std::string validation = validation_prefix(prefix);
  return {prefix, loss_prefix(prefix), validation, loss_prefix(validation)};
}

}  // namespace

std::vector<fs::path> prepared_paths(const std::string& prefix) {
  std::vector<fs::path> paths = {tokenizer_json_path(prefix), tokenizer_model_path(prefix),
                                 chat_template_path(prefix)};
  for (const std::string& each : all_prefixes(prefix)) {
    paths.push_back(bin_path(each));
    paths.push_back(idx_path(each));
  }
  return paths;
}

fs::path chat_template_path(const std::string& prefix) { return prefix + ".chat_template.jinja"; }

void make_prefix_folder(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  if (folder.empty()) return;
  std::error_code failure;
  fs::create_directories(folder, failure);
  TRIREME_CHECK(!failure, "output ", prefix, " is not writable: ", failure.message(),
                "; choose another --output");
}

TokenFile::TokenFile(const std::string& prefix, int64_t vocab_size, bool has_mask)
    : tokens_(prefix, vocab_size) {
  if (has_mask) mask_.emplace(loss_prefix(prefix), kMaskValues, TokenType::kUint8);
}

void TokenFile::add_document(std::span<const int32_t> tokens, std::span<const int32_t> mask) {
  TRIREME_ASSERT(mask_ && tokens.size() == mask.size(), tokens.size(), " tokens and a mask of ",
                 mask.size());
  tokens_.add_document(tokens);
  mask_->add_document(mask);
}

void TokenFile::complete() {
  tokens_.complete();
  if (mask_) mask_->complete();
}

void TokenFile::publish() {
  if (mask_) mask_->publish();
  tokens_.publish();
}

void publish_token_files(const std::string& prefix, const Tokenizer& tokenizer, TokenFile& training,
                         TokenFile* validation, std::string_view chat_template) {
  training.complete();
  if (validation != nullptr) validation->complete();
  // Left by an earlier run. Without an index no one reads tokens with the new tokenizer, and a mask
  // that belongs to other tokens must not be found beside the new ones.
  std::error_code ignored;
  const std::vector<std::string> prefixes = all_prefixes(prefix);
  for (const std::string& each : prefixes) fs::remove(idx_path(each), ignored);
  for (const std::string& each : prefixes) {
    if (each != prefix) fs::remove(bin_path(each), ignored);
  }
  fs::remove(chat_template_path(prefix), ignored);
  save_tokenizer(tokenizer, prefix);
  if (!chat_template.empty()) write_file_atomically(chat_template_path(prefix), chat_template);
  training.publish();
  if (validation != nullptr) validation->publish();
}

}  // namespace trireme::dataset
