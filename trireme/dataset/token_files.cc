#include "trireme/dataset/token_files.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaskValues = 3;  // 0, kLearntToken, kRejectedToken
constexpr int64_t kPixelValues = 256;

// The prefixes of all files with tokens or masks.
std::vector<std::string> all_prefixes(const std::string& prefix) {
  std::vector<std::string> prefixes;
  for (const std::string& of : {prefix, validation_prefix(prefix)}) {
    prefixes.insert(prefixes.end(), {of, loss_prefix(of), images_prefix(of), label_prefix(of)});
  }
  return prefixes;
}

}  // namespace

std::vector<fs::path> prepared_paths(const std::string& prefix) {
  std::vector<fs::path> paths = {tokenizer_json_path(prefix), tokenizer_model_path(prefix),
                                 chat_template_path(prefix), classes_path(prefix)};
  for (const std::string& each : all_prefixes(prefix)) {
    paths.push_back(bin_path(each));
    paths.push_back(idx_path(each));
  }
  return paths;
}

fs::path chat_template_path(const std::string& prefix) { return prefix + ".chat_template.jinja"; }

fs::path classes_path(const std::string& prefix) { return prefix + ".classes.json"; }

void make_prefix_folder(const std::string& prefix) {
  TRIREME_CHECK(
      !is_url(prefix), "output ", prefix,
      " is in a store, and preparation writes to disks; choose a path, and copy the files "
      "that begin with it there");
  const fs::path folder = fs::path(prefix).parent_path();
  if (folder.empty()) return;
  std::error_code failure;
  fs::create_directories(folder, failure);
  TRIREME_CHECK(!failure, "output ", prefix, " is not writable: ", failure.message(),
                "; choose another --output");
}

TokenFile::TokenFile(const std::string& prefix, int64_t vocab_size, const FilesBeside& beside)
    : tokens_(prefix, vocab_size) {
  if (beside.mask) mask_.emplace(loss_prefix(prefix), kMaskValues, TokenType::kUint8);
  if (beside.images) images_.emplace(images_prefix(prefix), kPixelValues, TokenType::kUint8);
  if (beside.classes > 0) labels_.emplace(label_prefix(prefix), beside.classes);
}

void TokenFile::add_image(std::span<const int32_t> pixels) {
  TRIREME_ASSERT(images_, "an image of a token file without images");
  images_->add_document(pixels);
}

void TokenFile::add_document(std::span<const int32_t> tokens, std::span<const int32_t> mask) {
  TRIREME_ASSERT(mask_ && tokens.size() == mask.size(), tokens.size(), " tokens and a mask of ",
                 mask.size());
  tokens_.add_document(tokens);
  mask_->add_document(mask);
}

void TokenFile::add_labelled(std::span<const int32_t> tokens, int32_t label) {
  TRIREME_ASSERT(labels_, "a label for a file without any");
  tokens_.add_document(tokens);
  labels_->add_document(std::span(&label, 1));
}

void TokenFile::complete() {
  tokens_.complete();
  if (mask_) mask_->complete();
  if (images_) images_->complete();
  if (labels_) labels_->complete();
}

void TokenFile::publish() {
  if (images_) images_->publish();
  if (mask_) mask_->publish();
  if (labels_) labels_->publish();
  tokens_.publish();
}

void publish_token_files(const std::string& prefix, const Tokenizer& tokenizer, TokenFile& training,
                         TokenFile* validation, const TextsBeside& beside) {
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
  const std::pair<fs::path, std::string_view> texts[] = {
      {chat_template_path(prefix), beside.chat_template}, {classes_path(prefix), beside.classes}};
  for (const auto& [path, text] : texts) fs::remove(path, ignored);
  save_tokenizer(tokenizer, prefix);
  for (const auto& [path, text] : texts) {
    if (!text.empty()) write_file_atomically(path, text);
  }
  training.publish();
  if (validation != nullptr) validation->publish();
}

}  // namespace trireme::dataset
