#include "trireme/dataset/prepare.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/file/unfinished_work.h"
#include "trireme/dataset/indexed_file_writer.h"
#include "trireme/dataset/preparation.h"
#include "trireme/dataset/row_files.h"
#include "trireme/dataset/text/documents.h"
#include "trireme/dataset/text/file_texts.h"
#include "trireme/dataset/text/row_texts.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

void check_options(const PrepareOptions& options) {
  const bool is_bytes = options.tokenizer == TokenizerKind::kBytes;
  TRIREME_CHECK(!is_bytes || options.vocab_size == 0 || options.vocab_size == 257, "vocab_size is ",
                options.vocab_size,
                ", but tokenizer bytes always has 257; leave it out or use --tokenizer bpe");
  TRIREME_CHECK(!is_bytes || options.tokenizer_model.empty(),
                "a tokenizer model is given, but tokenizer is bytes; use --tokenizer bpe or json");
  const bool is_json = options.tokenizer == TokenizerKind::kJson;
  TRIREME_CHECK(!is_json || !options.tokenizer_model.empty(),
                "tokenizer json has no file; give a tokenizer.json with --tokenizer-model");
  TRIREME_CHECK(is_json || options.end_of_document.empty(), "end_of_document is \"",
                shown(options.end_of_document),
                "\", but only tokenizer json has a choice; leave out --end-of-document");
  TRIREME_CHECK(options.vocab_size >= 0 && options.vocab_size <= INT32_MAX, "vocab_size is ",
                options.vocab_size, ", expected 1 to ", INT32_MAX);
  TRIREME_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
                "validation_fraction is ", options.validation_fraction,
                ", expected at least 0 and below 1");
  TRIREME_CHECK(!options.output.empty() && options.output.back() != '/', "output is \"",
                options.output, "\", expected a prefix of file names such as data/python");
  TRIREME_CHECK(options.num_threads > 0, "num_threads is ", options.num_threads,
                ", expected at least 1");
}

std::unique_ptr<Tokenizer> choose_tokenizer(const PrepareOptions& options,
                                            const PreparationPlace& place,
                                            const std::function<std::string()>& sample) {
  if (options.tokenizer == TokenizerKind::kBytes) return make_bytes_tokenizer();
  if (options.tokenizer_model.empty()) {  // bpe: json has one
    constexpr int64_t kDefaultVocabSize = 8192;
    const int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size : kDefaultVocabSize;
    return make_bpe_tokenizer(kept_model(place, [&] { return train_bpe(sample, vocab_size); }));
  }
  std::string model;
  try {
    model = read_file(options.tokenizer_model);
  } catch (const Error& error) {
    throw ConfigError(concat("tokenizer model: ", error.what()));
  }
  auto tokenizer = options.tokenizer == TokenizerKind::kJson
                       ? make_json_tokenizer(std::move(model), options.end_of_document)
                       : make_bpe_tokenizer(std::move(model));
  TRIREME_CHECK(options.vocab_size == 0 || options.vocab_size == tokenizer->vocab_size(),
                "vocab_size is ", options.vocab_size, ", but ", options.tokenizer_model, " has ",
                tokenizer->vocab_size(), "; leave it out");
  return tokenizer;
}

using Progress = std::function<void(int64_t, int64_t)>;

// Keeps another preparation away from the output, and says before anything takes long whether it
// can be written at all.
void take_output(const PrepareOptions& options, std::optional<WorkFolder>& work,
                 WorkFolder::Left left) {
  make_prefix_folder(options.output);
  if (!work) work.emplace(options.output, left);
}

void probe_output(const PrepareOptions& options) {
  const IndexedFileWriter probe(options.output, 1);
}

// The report of a preparation whose work stays when it fails (unfinished_work.h).
PrepareReport report_leaving_work(WorkFolder& work, const std::function<PrepareReport()>& run) {
  PrepareReport report;
  dataset::leaving_work({.path = work.path(),
                         .has_journal = [path = work.path()] { return has_journal(path); },
                         .release = [&work] { work.release(); }},
                        [&] { report = run(); });
  return report;
}

PrepareReport prepare_files(const PrepareOptions& options, const Progress& progress) {
  const DocumentOptions wanted = {.inputs = options.inputs,
                                  .globs = options.globs,
                                  .excludes = options.excludes,
                                  .ignored = prepared_paths(options.output),
                                  .as_text = options.as_text,
                                  .stores = options.stores};
  std::vector<Document> documents = find_documents(wanted);
  std::optional<WorkFolder> work;
  if (std::ranges::any_of(documents, &Document::is_pipe)) {
    take_output(options, work, WorkFolder::Left::kRemoved);
    keep_pipes(documents, wanted, work->path());
  }
  const bool by_text = options.split == SplitBy::kText;
  std::vector<Digest> digests;
  if (options.dedupe || by_text) digests = digests_of(documents);
  const int64_t duplicates = options.dedupe ? remove_repeated(documents, digests) : 0;
  const FileSplit split =
      by_text ? split_files_by_text(std::move(documents), digests, options.validation_fraction,
                                    options.seed)
              : split_files(std::move(documents), options.validation_fraction, options.seed);
  take_output(options, work, WorkFolder::Left::kKept);
  return report_leaving_work(*work, [&] {
    probe_output(options);
    const PreparationPlace place{work->path(),
                                 identity_of(options, split.training, split.validation)};
    const auto tokenizer = choose_tokenizer(
        options, place, sample_files(split.training, options.tokenizer_sample_bytes, options.seed));
    Preparation preparation(options, *tokenizer, !split.validation.empty(), place);
    FileTexts texts(split);
    preparation.encode_all(texts, progress);
    preparation.publish();
    PrepareReport report = preparation.report();
    report.duplicates = duplicates;
    return report;
  });
}

std::optional<ColumnFormat> columns_of(DocumentForm form) {
  if (form == DocumentForm::kParquet) return ColumnFormat::kParquet;
  if (form == DocumentForm::kArrow) return ColumnFormat::kArrow;
  return std::nullopt;
}

std::vector<std::string> column_globs(ColumnFormat format) {
  if (format == ColumnFormat::kParquet) return {"*.parquet"};
  return {"*.arrow", "*.feather", "*.arrows"};
}

PrepareReport prepare_rows(const PrepareOptions& options, const Progress& progress) {
  const std::optional<ColumnFormat> columns = columns_of(options.form);
  RowTextOptions rows{.form = {.key = TextKey(options.text_key), .columns = columns},
                      .skip_bad_rows = options.skip_bad_rows,
                      .dedupe = options.dedupe};
  std::optional<WorkFolder> work;
  const std::vector<Document> files = find_row_files(
      {.inputs = options.inputs,
       .globs = options.globs.empty() && columns ? column_globs(*columns) : options.globs,
       .excludes = options.excludes,
       .left = WorkFolder::Left::kKept,
       .stores = options.stores},
      options.output, work);
  return report_leaving_work(*work, [&] {
    rows.split = choose_text_split(files, rows, options.validation_fraction, options.seed);
    probe_output(options);
    const PreparationPlace place{work->path(), identity_of(options, files)};
    std::function<std::string()> sample;  // opened only if a tokenizer is trained: it reads rows
    const auto tokenizer = choose_tokenizer(options, place, [&] {
      if (!sample) sample = sample_rows(files, rows, options.tokenizer_sample_bytes);
      return sample();
    });
    Preparation preparation(options, *tokenizer, rows.split.fraction > 0, place);
    RowTexts texts(files, rows);
    preparation.encode_all(texts, progress);
    PrepareReport report = preparation.report();
    TRIREME_CHECK(
        report.documents > 0, files.front().path.string(), " has no row with a text",
        report.first_bad_row.empty() ? "" : concat("; the first: ", report.first_bad_row));
    preparation.publish();
    return report;
  });
}

}  // namespace

std::string validation_prefix(const std::string& prefix) { return prefix + ".validation"; }

PrepareReport prepare(const PrepareOptions& options, const Progress& progress) {
  check_options(options);
  return options.form == DocumentForm::kFiles ? prepare_files(options, progress)
                                              : prepare_rows(options, progress);
}

}  // namespace trireme::dataset
