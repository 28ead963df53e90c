#include "trireme/dataset/preparation.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/atomic_file.h"
#include "trireme/dataset/text/in_order.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJournalFormat = 1;
constexpr int64_t kMostCounted = int64_t{1} << 48;  // so that sizes in bytes do not overflow

Digest digest_of_bytes(std::string_view text) { return digest_of(std::as_bytes(std::span(text))); }

fs::path digests_path(const fs::path& folder) { return folder / "digests"; }

nlohmann::json to_json(const IndexedFileWriter::Written& written) {
  return {{"tokens", written.num_tokens},
          {"documents", written.num_documents},
          {"sequences", written.num_sequences},
          {"open", written.sequence_tokens}};
}

IndexedFileWriter::Written read_written(const JsonView& view) {
  return {.num_tokens = view.at("tokens").integer(0, kMostCounted),
          .num_documents = view.at("documents").integer(0, kMostCounted),
          .num_sequences = view.at("sequences").integer(0, kMostCounted),
          .sequence_tokens = view.at("open").integer(0, kMostCounted)};
}

}  // namespace

struct Preparation::EncodedTexts {
  struct Tokens {
    std::vector<int32_t> ids{};
    int64_t num_unknown = 0;
  };
  TextBatch batch{};
  std::vector<Tokens> tokens{};  // of each text; none when the bytes are the tokens
};

Digest identity_of(const PrepareOptions& options, const std::vector<Document>& training,
                   const std::vector<Document>& validation) {
  std::vector<Digest> parts;
  const auto add = [&](const auto&... values) {
    parts.push_back(digest_of_bytes(concat(values..., "\n")));
  };
  add(kJournalFormat, " ", static_cast<int>(options.form), " ", static_cast<int>(options.tokenizer),
      " ", options.end_of_document);
  add(options.vocab_size, " ", options.tokenizer_sample_bytes, " ", options.seed, " ",
      static_cast<int>(options.split));
  add(std::bit_cast<uint64_t>(options.validation_fraction), " ", options.dedupe, " ",
      options.append_end_of_document, " ", options.skip_bad_rows);
  add(options.text_key);
  if (is_file(options.tokenizer_model))  // opening it says what is wrong
    parts.push_back(digest_of(MappedFile(options.tokenizer_model).bytes()));
  for (const std::vector<Document>* documents : {&training, &validation}) {
    add(documents->size());
    for (const Document& document : *documents) {
      if (document.object) {
        // One that has no version is never the same again.
        const std::string version = document.object->version();
        add(document.name, " ", document.begin, " ", document.end, " ",
            version.empty() ? concat("of ", monotonic_ns(), " ", ::getpid()) : version);
        add(document.object->name());
        continue;
      }
      std::error_code failure;
      const auto time = fs::last_write_time(document.path, failure).time_since_epoch().count();
      const auto size = fs::file_size(document.path, failure);
      if (failure)
        throw Error(concat("cannot read ", document.path.string(), ": ", failure.message()));
      add(document.name, " ", document.begin, " ", document.end, " ", size, " ", time);
      add(fs::absolute(document.path).string());
    }
  }
  return digest_of(parts);
}

std::string kept_model(const PreparationPlace& place, const std::function<std::string()>& train) {
  const fs::path path = place.folder() / "trained.model";
  if (is_file(path)) return read_file(path);
  std::string model = train();
  std::error_code ignored;  // writing says more
  fs::create_directory(place.folder(), ignored);
  write_file_atomically(path, model);
  return model;
}

Preparation::Preparation(const PrepareOptions& options, const Tokenizer& tokenizer,
                         bool has_validation, const PreparationPlace& place)
    : options_(options), tokenizer_(tokenizer), has_validation_(has_validation), place_(place) {
  if (options.dedupe && options.form != DocumentForm::kFiles) seen_.emplace();
  if (go_on_from_journal(place_, [this](const JsonView& journal) { go_on(journal); })) return;
  std::error_code ignored;
  fs::remove(digests_path(place_.folder()), ignored);
  progress_ = {};
  num_digests_ = 0;
  if (seen_) seen_.emplace();
  open_files({}, {});
}

void Preparation::open_files(const IndexedFileWriter::Written& training,
                             const IndexedFileWriter::Written& validation) {
  const auto place = [&](const char* name) { return (place_.folder() / name).string(); };
  training_.emplace(options_.output, tokenizer_.vocab_size(),
                    IndexedFileWriter::Continued{place("training"), training});
  if (!has_validation_) return;
  validation_.emplace(validation_prefix(options_.output), tokenizer_.vocab_size(),
                      IndexedFileWriter::Continued{place("validation"), validation});
}

void Preparation::go_on(const JsonView& root) {
  progress_.batches = root.at("batches").integer(0);
  progress_.begins = root.at("begins").boolean();
  progress_.is_repeated = root.at("is_repeated").boolean();
  PrepareReport& counts = progress_.counts;
  counts.bytes = root.at("bytes").integer(0);
  counts.unknown_tokens = root.at("unknown_tokens").integer(0);
  counts.duplicates = root.at("duplicates").integer(0);
  counts.bad_rows = root.at("bad_rows").integer(0);
  counts.empty_rows = root.at("empty_rows").integer(0);
  counts.first_bad_row = root.at("first_bad_row").text();
  if (seen_) read_digests(root.at("digests").integer(0, kMostCounted));
  open_files(read_written(root.at("training")), read_written(root.at("validation")));
  journal_bytes_ = counts.bytes;
  counts.bytes_resumed = counts.bytes;
}

void Preparation::read_digests(int64_t count) {
  const fs::path path = digests_path(place_.folder());
  const size_t num_bytes = static_cast<size_t>(count) * sizeof(Digest);
  {
    const MappedFile digests(path);
    if (digests.bytes().size() < num_bytes) throw Error(concat(path.string(), " is cut short"));
    for (size_t at = 0; at < num_bytes; at += sizeof(Digest)) {
      Digest digest;
      std::memcpy(&digest, digests.bytes().data() + at, sizeof(digest));
      seen_->insert(digest);
    }
  }
  std::error_code failure;  // of those behind the journal
  fs::resize_file(path, num_bytes, failure);
  if (failure) throw Error(concat("cannot write ", path.string(), ": ", failure.message()));
  num_digests_ = count;
}

void Preparation::append_digests() {
  OutputFile file(digests_path(place_.folder()), /*append=*/true);
  file.write(new_digests_.data(), new_digests_.size() * sizeof(Digest));
  file.sync();
  num_digests_ += std::ssize(new_digests_);
  new_digests_.clear();
}

void Preparation::keep_progress() {
  const PrepareReport& counts = progress_.counts;
  if (seen_) append_digests();
  const auto validation = validation_ ? validation_->tokens().sync() : IndexedFileWriter::Written();
  write_journal(place_, {{"batches", progress_.batches},
                         {"begins", progress_.begins},
                         {"is_repeated", progress_.is_repeated},
                         {"bytes", counts.bytes},
                         {"unknown_tokens", counts.unknown_tokens},
                         {"duplicates", counts.duplicates},
                         {"bad_rows", counts.bad_rows},
                         {"empty_rows", counts.empty_rows},
                         {"first_bad_row", counts.first_bad_row},
                         {"digests", num_digests_},
                         {"training", to_json(training_->tokens().sync())},
                         {"validation", to_json(validation)}});
  journal_bytes_ = counts.bytes;
}

Preparation::EncodedTexts Preparation::encode(TextBatch batch) const {
  EncodedTexts encoded{.batch = std::move(batch)};
  if (tokenizer_.kind() == TokenizerKind::kBytes) return encoded;
  encoded.tokens.reserve(encoded.batch.texts.size());
  for (const DocumentText& document : encoded.batch.texts) {
    EncodedTexts::Tokens tokens{.ids = tokenizer_.encode(document.text)};
    if (const auto unknown = tokenizer_.unknown_token())
      tokens.num_unknown = std::ranges::count(tokens.ids, *unknown);
    encoded.tokens.push_back(std::move(tokens));
  }
  return encoded;
}

void Preparation::encode_all(TextSource& source,
                             const std::function<void(int64_t, int64_t)>& progress) {
  progress_.counts.bytes_read = source.num_bytes();
  for (int64_t i = 0; i < progress_.batches; ++i) {
    const std::function<TextBatch()> done = source.next();
    if (!done) throw Error("a file changed while it was read");
    if (progress) progress(source.num_read(), source.num_bytes());
  }
  const auto next = [&]() -> std::function<EncodedTexts()> {
    std::function<TextBatch()> read = source.next();
    if (!read) return {};
    return [this, read = std::move(read)] { return encode(read()); };
  };
  in_order<EncodedTexts>(options_.num_threads, next, [&](const EncodedTexts& encoded) {
    const std::vector<DocumentText>& texts = encoded.batch.texts;
    for (size_t i = 0; i < texts.size(); ++i) {
      add(encoded, i);
      if (progress) progress(texts[i].num_read, source.num_bytes());
    }
    ++progress_.batches;
    if (progress_.counts.bytes - journal_bytes_ >= options_.journal_bytes) keep_progress();
  });
}

void Preparation::add(const EncodedTexts& texts, size_t index) {
  PrepareReport& counts = progress_.counts;
  const DocumentText& document = texts.batch.texts[index];
  if (!document.problem.empty()) {
    if (counts.bad_rows++ == 0) counts.first_bad_row = document.problem;
    return;
  }
  if (document.text.empty()) {
    ++counts.empty_rows;
    return;
  }
  // Files have none: of these, repeated ones are not read again.
  if (seen_ && std::exchange(progress_.begins, document.is_last)) {
    progress_.is_repeated = !seen_->insert(document.digest);
    counts.duplicates += progress_.is_repeated ? 1 : 0;
    if (!progress_.is_repeated) new_digests_.push_back(document.digest);
  }
  if (progress_.is_repeated) return;
  IndexedFileWriter& file = (document.is_validation ? *validation_ : *training_).tokens();
  if (texts.tokens.empty()) {
    file.append_bytes(document.text);
  } else {
    file.append(texts.tokens[index].ids);
    counts.unknown_tokens += texts.tokens[index].num_unknown;
  }
  counts.bytes += std::ssize(document.text);
  if (!document.is_last) return;
  const int32_t end = tokenizer_.end_of_document();
  if (options_.append_end_of_document) file.append({&end, 1});
  file.end_document();
}

void Preparation::publish() {
  publish_token_files(options_.output, tokenizer_, *training_,
                      validation_ ? &*validation_ : nullptr);
}

PrepareReport Preparation::report() {
  PrepareReport report = progress_.counts;
  report.tokenizer = tokenizer_.kind();
  report.vocab_size = tokenizer_.vocab_size();
  report.documents = training_->tokens().num_documents();
  report.tokens = training_->tokens().num_tokens();
  report.validation_documents = validation_ ? validation_->tokens().num_documents() : 0;
  report.validation_tokens = validation_ ? validation_->tokens().num_tokens() : 0;
  report.bytes_per_token = static_cast<double>(report.bytes) /
                           static_cast<double>(report.tokens + report.validation_tokens);
  return report;
}

}  // namespace trireme::dataset
