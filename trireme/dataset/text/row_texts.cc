#include "trireme/dataset/text/row_texts.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/text/digest_set.h"

namespace trireme::dataset {
namespace {

constexpr size_t kUsualRowBytes = size_t{64} << 10;  // few are larger

// The text of a row, or what is wrong with it.
struct RowText {
  std::optional<std::string_view> text{};
  std::string problem{};
};

RowText read_row(std::span<char> bytes, bool is_null, const RowPlace& place, const TextRows& rows,
                 bool skip_bad_rows) {
  try {
    return {.text = rows.text_in(bytes, is_null, place)};
  } catch (const ConfigError& error) {
    if (skip_bad_rows) return {.problem = error.what()};
    throw ConfigError(concat(error.what(), " (--skip-bad-rows leaves such rows out)"));
  }
}

// The text of the row that was read last, if it has one.
std::optional<std::string> read_row(const StoredRow& row, const TextRows& rows,
                                    bool skip_bad_rows) {
  std::string bytes(row.bytes.size() + kJsonPadding, '\0');
  std::ranges::copy(row.bytes, bytes.begin());
  const std::optional<std::string_view> text =
      read_row(std::span(bytes).first(row.bytes.size()), row.is_null, rows.place(), rows,
               skip_bad_rows)
          .text;
  if (!text) return std::nullopt;
  bytes.resize(text->size());
  return bytes;
}

// Rows that were read, and are not parsed yet.
struct RowBatch {
  struct Row {
    size_t end = 0;  // of what `bytes` has of it
    bool is_null = false;
    RowPlace place{};
    int64_t num_read = 0;
  };
  std::string bytes{};  // of the rows, and kJsonPadding more
  std::vector<Row> rows{};
};

// Adds the pieces of a text, as those of a file are cut.
void add_pieces(std::string_view text, DocumentText document, std::vector<DocumentText>& texts) {
  while (text.size() > DocumentReader::kPieceBytes) {
    DocumentText& piece = texts.emplace_back(document);
    piece.text = text.substr(0, cut_length(text, DocumentReader::kPieceBytes));
    piece.is_last = false;
    text.remove_prefix(piece.text.size());
  }
  document.text = text;
  texts.push_back(std::move(document));
}

TextBatch texts_of(RowBatch& read, const TextRows& rows, const RowTextOptions& options) {
  TextBatch batch;
  batch.texts.reserve(read.rows.size());
  const std::span<char> bytes = batch.memory.emplace_back(std::move(read.bytes));
  const bool needs_digest = options.dedupe || options.split.fraction > 0;
  size_t begin = 0;
  for (const RowBatch::Row& row : read.rows) {
    DocumentText document{.num_read = row.num_read};
    auto [text, problem] = read_row(bytes.subspan(begin, row.end - begin), row.is_null, row.place,
                                    rows, options.skip_bad_rows);
    begin = row.end;
    if (!text) {
      document.problem = std::move(problem);
      batch.texts.push_back(std::move(document));
      continue;
    }
    if (needs_digest) {
      document.digest = digest_of_text(*text);
      document.is_validation = options.split.is_validation(document.digest);
    }
    add_pieces(*text, std::move(document), batch.texts);
  }
  return batch;
}

}  // namespace

TextSplit choose_text_split(const std::vector<Document>& files, const RowTextOptions& options,
                            double fraction, uint64_t seed) {
  TextSplitChooser chooser(fraction, seed);
  if (chooser.is_decided()) return chooser.split(files.front().path.string());
  const auto rows = open_text_rows(files, options.form);
  for (StoredRow row; !chooser.is_decided() && rows->next(row);) {
    const std::optional<std::string> text = read_row(row, *rows, options.skip_bad_rows);
    if (text && !text->empty()) chooser.add(digest_of_text(*text));
  }
  return chooser.split(files.front().path.string());
}

RowTexts::RowTexts(const std::vector<Document>& files, const RowTextOptions& options)
    : options_(options), rows_(open_text_rows(files, options.form)) {
  for (const Document& file : files) num_bytes_ += file.size();
}

std::function<TextBatch()> RowTexts::next() {
  auto read = std::make_shared<RowBatch>();
  read->bytes.reserve(kTextBatchBytes + kUsualRowBytes);
  StoredRow row;
  while (read->bytes.size() < kTextBatchBytes && rows_->next(row)) {
    read->bytes += row.bytes;
    read->rows.push_back({read->bytes.size(), row.is_null, rows_->place(), rows_->num_read()});
  }
  if (read->rows.empty()) return {};
  read->bytes.resize(read->bytes.size() + kJsonPadding);
  return [read, &rows = *rows_, &options = options_] { return texts_of(*read, rows, options); };
}

std::function<std::string()> sample_rows(const std::vector<Document>& files,
                                         const RowTextOptions& options, int64_t sample_bytes) {
  int64_t stored_bytes = 0;
  for (const Document& file : files) stored_bytes += file.size();
  // How much larger rows are than the files that hold them, by the first few.
  constexpr int64_t kLookBytes = 4 << 20;
  constexpr size_t kBlockBytes = 64 << 10;  // of which each is drawn
  int64_t row_bytes = 0, num_read = 1;
  {
    const auto rows = open_text_rows(files, options.form);
    for (StoredRow row; row_bytes < kLookBytes && rows->next(row);) {
      row_bytes += static_cast<int64_t>(row.bytes.size()) + 1;
      num_read = std::max<int64_t>(1, rows->num_read());
    }
  }
  const double share = static_cast<double>(sample_bytes) /
                       (static_cast<double>(stored_bytes) * static_cast<double>(row_bytes + 1) /
                        static_cast<double>(num_read));
  const std::shared_ptr<TextRows> rows = open_text_rows(files, options.form);
  auto seen = std::make_shared<DigestSet>();
  return [rows, seen, &options, share] {
    for (StoredRow row; rows->next(row);) {
      const RandomKey key =
          random_key(options.split.seed, concat("tokenizer/", to_text(digest_of_text(row.bytes))));
      std::vector<size_t> blocks;
      for (size_t block = 0; block * kBlockBytes < row.bytes.size(); ++block) {
        if (random_uniform(key, block) < share) blocks.push_back(block);
      }
      if (blocks.empty()) continue;
      const std::optional<std::string> text = read_row(row, *rows, options.skip_bad_rows);
      if (!text) continue;
      const Digest digest = digest_of_text(*text);
      if (options.split.is_validation(digest)) continue;
      if (options.dedupe && !seen->insert(digest)) continue;
      std::string sample;
      for (const size_t block : blocks) {
        if (block * kBlockBytes < text->size())
          sample += text->substr(block * kBlockBytes, kBlockBytes);
      }
      if (!sample.empty()) return sample;
    }
    return std::string();
  };
}

}  // namespace trireme::dataset
