#include "trireme/dataset/text/file_texts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/text/digest_set.h"
#include "trireme/dataset/text/text_split.h"

namespace trireme::dataset {
namespace {

int64_t total_bytes(const std::vector<Document>& documents) {
  int64_t sum = 0;
  for (const Document& document : documents) sum += document.size();
  return sum;
}

FileSplit split_tail(const Document& document, double fraction) {
  auto cut = document.begin +
             static_cast<int64_t>(static_cast<double>(document.size()) * (1.0 - fraction));
  Document around = document;
  around.begin = cut;
  constexpr int64_t kWindowBytes = 1 << 16;
  around.end = std::min(document.end, cut + kWindowBytes);
  const std::string window = DocumentReader(around).next();
  const size_t line = window.find('\n');
  if (line != std::string::npos && cut + static_cast<int64_t>(line) + 1 < document.end)
    cut += static_cast<int64_t>(line) + 1;
  TRIREME_CHECK(cut > document.begin && cut < document.end, document.path.string(), " has ",
                document.size(), " bytes, too few to set ", fraction,
                " of them aside; give more text or set validation_fraction to 0");
  FileSplit split{{document}, {document}};
  split.training[0].end = cut;
  split.validation[0].begin = cut;
  return split;
}

}  // namespace

FileSplit split_files(std::vector<Document> documents, double fraction, uint64_t seed) {
  if (fraction == 0) return {std::move(documents), {}};
  if (documents.size() == 1) return split_tail(documents[0], fraction);
  std::vector<double> draws;
  for (const Document& document : documents)
    draws.push_back(random_uniform(random_key(seed, "validation/" + document.name), 0));
  const auto lowest = std::min_element(draws.begin(), draws.end());
  const auto highest = std::max_element(draws.rbegin(), draws.rend());
  *lowest = 0.0;
  *highest = 1.0;
  FileSplit split;
  for (size_t i = 0; i < documents.size(); ++i)
    (draws[i] < fraction ? split.validation : split.training).push_back(std::move(documents[i]));
  return split;
}

FileSplit split_files_by_text(std::vector<Document> documents, const std::vector<Digest>& texts,
                              double fraction, uint64_t seed) {
  if (fraction == 0) return {std::move(documents), {}};
  if (documents.size() == 1) return split_tail(documents[0], fraction);
  TextSplitChooser chooser(fraction, seed);
  for (const Digest& text : texts) chooser.add(text);
  const TextSplit choice = chooser.split(documents[0].path.string());
  FileSplit split;
  for (size_t i = 0; i < documents.size(); ++i) {
    (choice.is_validation(texts[i]) ? split.validation : split.training)
        .push_back(std::move(documents[i]));
  }
  return split;
}

std::vector<Digest> digests_of(const std::vector<Document>& documents) {
  std::vector<Digest> texts;
  for (const Document& document : documents) {
    std::vector<Digest> pieces;
    DocumentReader reader(document);
    for (std::string piece = reader.next(); !piece.empty(); piece = reader.next())
      pieces.push_back(digest_of_text(piece));
    texts.push_back(pieces.size() == 1 ? pieces[0] : digest_of(pieces));
  }
  return texts;
}

int64_t remove_repeated(std::vector<Document>& documents, std::vector<Digest>& texts) {
  DigestSet seen;
  size_t kept = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (!seen.insert(texts[i])) continue;
    if (kept != i) documents[kept] = std::move(documents[i]);
    texts[kept++] = texts[i];
  }
  const auto removed = static_cast<int64_t>(documents.size() - kept);
  documents.resize(kept);
  texts.resize(kept);
  return removed;
}

FileTexts::FileTexts(const FileSplit& split)
    : split_(split), num_bytes_(total_bytes(split.training) + total_bytes(split.validation)) {}

std::function<TextBatch()> FileTexts::next() {
  auto batch = std::make_shared<TextBatch>();
  for (size_t bytes = 0; bytes < kTextBatchBytes;) {
    if (index_ == documents().size()) {
      if (is_validation_) break;
      is_validation_ = true;
      index_ = 0;
      continue;
    }
    if (!reader_) {
      reader_ = std::make_unique<DocumentReader>(documents()[index_]);
      piece_ = reader_->next();
    }
    const std::string& piece = batch->memory.emplace_back(std::move(piece_));
    DocumentText text{.text = piece, .is_validation = is_validation_};
    piece_ = reader_->next();
    text.is_last = piece_.empty();
    if (text.is_last) {
      reader_.reset();
      ++index_;
    }
    bytes += text.text.size();
    num_read_ += static_cast<int64_t>(text.text.size());
    text.num_read = num_read_;
    batch->texts.push_back(std::move(text));
  }
  if (batch->texts.empty()) return {};
  return [batch] { return std::move(*batch); };
}

std::function<std::string()> sample_files(const std::vector<Document>& documents,
                                          int64_t sample_bytes, uint64_t seed) {
  constexpr int64_t kBlockBytes = 1 << 16;
  const double share =
      static_cast<double>(sample_bytes) / static_cast<double>(total_bytes(documents));
  return [&documents, seed, share, i = size_t{0}, block = int64_t{0}]() mutable {
    for (; i < documents.size(); ++i, block = 0) {
      const RandomKey key = random_key(seed, "tokenizer/" + documents[i].name);
      while (block * kBlockBytes < documents[i].size()) {
        Document part = documents[i];
        part.begin += block * kBlockBytes;
        part.end = std::min(part.end, part.begin + kBlockBytes);
        if (random_uniform(key, block++) < share) return DocumentReader(part).next();
      }
    }
    return std::string();
  };
}

}  // namespace trireme::dataset
