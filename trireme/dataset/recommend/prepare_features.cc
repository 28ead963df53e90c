#include "trireme/dataset/recommend/prepare_features.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/file/unfinished_work.h"
#include "trireme/dataset/recommend/criteo.h"
#include "trireme/dataset/recommend/criteo_arrays.h"
#include "trireme/dataset/recommend/csv_data.h"
#include "trireme/dataset/recommend/debian.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/feature_journal.h"
#include "trireme/dataset/recommend/raw_data.h"
#include "trireme/dataset/recommend/record_file.h"
#include "trireme/dataset/recommend/vocabulary.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

void check_options(const PrepareFeaturesOptions& options) {
  TRIREME_CHECK(!options.inputs.empty(), "no input: name files with --input");
  TRIREME_CHECK(options.min_count >= 1, "min_count is ", options.min_count,
                "; expected at least 1");
  TRIREME_CHECK(options.min_count == 1 || options.ids == CategoryIds::kRows, "min_count is ",
                options.min_count,
                " and ids are hashes, which are not counted; leave it out and train with "
                "tables.open_min_uses");
  TRIREME_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
                "validation_fraction is ", options.validation_fraction,
                "; expected at least 0 and below 1");
  TRIREME_CHECK(!options.output.empty(), "output is empty; expected a folder such as data/criteo");
}

// The input. With columns of CSV they are found in its first file, or are those of the dictionary.
std::unique_ptr<RawData> open_input(const PrepareFeaturesOptions& options) {
  if (options.format != RawFormat::kCsv) return open_raw(options.format, options.inputs);
  const std::string& first = options.inputs.front();
  const FeatureSchema schema =
      options.dictionary.empty()
          ? csv_schema(options.columns, csv_header(first, options.columns.separator), first)
          : read_schema(options.dictionary);
  return open_raw(options.format, options.inputs, Labels::kRequired, &schema);
}

// A name that occurs twice, or too many tables, are found before hours of reading.
void check_columns(FeatureSchema schema) {
  for (FeatureTable& table : schema.tables) table.rows = 1;
  schema.num_training = 1;
  schema.num_items = schema.num_tables(TableSide::kItem) > 0 ? 1 : 0;
  if (schema.label == LabelKind::kClass) schema.classes = {"any"};
  check_schema(schema, "the input");
}

// The second pass.
class Encoder : public RawPass {
 public:
  // journal: how far it is; it writes it to `folder` every options.journal_bytes
  Encoder(const PrepareFeaturesOptions& options, Vocabulary& vocabulary, const fs::path& folder,
          const FeatureJournal& journal, Progress progress)
      : RawPass(options.seed, options.validation_fraction, std::move(progress)),
        vocabulary_(vocabulary),
        schema_(vocabulary.schema()),
        layout_(schema_),
        folder_(folder),
        journal_bytes_(options.journal_bytes),
        num_done_(journal.num_samples),
        journal_(journal),
        training_(folder / kTrainingFile, layout_.num_bytes(), journal.num_training),
        ids_(static_cast<size_t>(schema_.num_tables(TableSide::kQuery))) {
    if (options.validation_fraction > 0) {
      validation_.emplace(folder / kValidationFile, layout_.num_bytes(), journal.num_validation);
    }
  }

  void on_item(std::string_view /*key*/, const Categories& /*categories*/) override {}

  void on_sample(const RawSample& sample) override {
    if (num_seen_++ < num_done_) return;
    RecordWriter& writer = is_for_validation(sample) ? *validation_ : training_;
    const std::span<std::byte> record = writer.next();
    for (size_t t = 0; t < ids_.size(); ++t) {
      const size_t count =
          std::min(sample.categories[t].size(), static_cast<size_t>(schema_.tables[t].max_ids));
      ids_[t].resize(count);
      for (size_t i = 0; i < count; ++i) {
        ids_[t][i] = vocabulary_.id_of(t, sample.categories[t][i]);
        ++journal_.num_ids;
        journal_.num_rare_ids += ids_[t][i] == 0 && !schema_.tables[t].is_hashed ? 1 : 0;
      }
    }
    layout_.ids.pack(ids_, record);
    if (!sample.dense.empty()) {
      std::memcpy(record.data() + layout_.dense_at, sample.dense.data(),
                  sample.dense.size() * sizeof(float));
    }
    if (schema_.num_items > 0) {
      const int64_t item = vocabulary_.item(sample.item);
      if (item < 0) begin_anew("the input changed while it was read; prepare it again");
      store_number(record, layout_.item_at, static_cast<uint32_t>(item));
    }
    if (schema_.label == LabelKind::kBinary) {
      store_number(record, layout_.label_at, static_cast<float>(sample.label));
    } else if (schema_.label == LabelKind::kClass) {
      store_number(record, layout_.label_at,
                   static_cast<int32_t>(vocabulary_.class_of(sample.class_name)));
    }
  }

  void on_bytes(int64_t num_bytes) override {
    RawPass::on_bytes(num_bytes);
    num_behind_ += num_bytes;
    if (num_behind_ < journal_bytes_ || num_seen_ <= num_done_) return;
    num_behind_ = 0;
    journal_.num_samples = num_seen_;
    journal_.num_training = training_.sync();
    if (validation_) journal_.num_validation = validation_->sync();
    write_feature_journal(folder_, journal_);
  }

  void finish() {
    if (num_seen_ < num_done_) {
      begin_anew(concat("the input has ", num_seen_, " samples and had ", num_done_,
                        " before; prepare it again"));
    }
    schema_.num_training = training_.finish();
    schema_.num_validation = validation_ ? validation_->finish() : 0;
    TRIREME_CHECK(schema_.num_training > 0, "no sample is for training; give more data");
    TRIREME_CHECK(!validation_ || schema_.num_validation > 0, "of ", schema_.num_training,
                  " samples none is for validation; give more data, another --seed or "
                  "--validation-fraction 0");
    check_schema(schema_, "the input");
    write_file_atomically(folder_ / kSchemaFile, to_json(schema_));
    read_schema(folder_);  // what it would refuse, such as too many classes, does not appear
  }

  const FeatureJournal& journal() const { return journal_; }

  // For what does not fit the input: the next call does not meet it again.
  [[noreturn]] void begin_anew(const std::string& reason) const {
    remove_feature_journal(folder_);
    throw ConfigError(reason);
  }

 private:
  Vocabulary& vocabulary_;
  FeatureSchema& schema_;
  SampleLayout layout_;
  fs::path folder_;
  int64_t journal_bytes_;
  int64_t num_done_;        // samples whose records an interrupted call has written
  int64_t num_seen_ = 0;    // of the input
  int64_t num_behind_ = 0;  // bytes of the input since the last journal
  FeatureJournal journal_;
  RecordWriter training_;
  std::optional<RecordWriter> validation_;
  std::vector<std::vector<int64_t>> ids_;
};

// Both passes, in a folder that may have what an interrupted call has left.
class FeaturePreparation {
 public:
  FeaturePreparation(const PrepareFeaturesOptions& options, const fs::path& folder,
                     const std::function<void(int64_t, int64_t)>& progress)
      : options_(options), folder_(folder), raw_(open_input(options)) {
    check_columns(raw_->schema());
    on_bytes_ = [this, progress](int64_t num_bytes) {
      done_ += num_bytes;
      if (progress) progress(done_, 2 * raw_->num_bytes());
    };
  }

  PrepareFeaturesReport run() {
    const bool is_resumed = go_on();
    if (!is_resumed) begin();
    // The first pass has found the statistics of transforms.
    if (vocabulary_->schema().csv) {
      raw_ = open_raw(options_.format, options_.inputs, Labels::kRequired, &vocabulary_->schema());
    }
    raw_->read(*encoder_);
    const int64_t num_bytes = journal_.num_bytes;
    if (done_ - num_bytes != num_bytes) {
      encoder_->begin_anew(concat(
          "the input had ", num_bytes, " bytes when it was read first and ", done_ - num_bytes,
          " the second time; expected files that stay as they are: prepare it again"));
    }
    encoder_->finish();
    remove_feature_journal(folder_);
    return {.schema = vocabulary_->schema(),
            .num_categories = journal_.num_categories,
            .num_ids = encoder_->journal().num_ids,
            .num_rare_ids = encoder_->journal().num_rare_ids,
            .num_bytes = raw_->num_bytes(),
            .is_resumed = is_resumed,
            .num_resumed = journal_.num_samples};
  }

 private:
  // With the vocabulary and the records that are there, if they are of this call.
  bool go_on() {
    const auto found = read_feature_journal(folder_, feature_identity(options_));
    if (!found || found->num_categories.size() != raw_->schema().tables.size()) return false;
    try {
      PrepareFeaturesOptions own = options_;
      own.dictionary = folder_.string();
      vocabulary_.emplace(raw_->schema(), own, on_bytes_);
      encoder_.emplace(options_, *vocabulary_, folder_, *found, on_bytes_);
    } catch (const Error&) {  // files that are damaged, or behind the journal
      return false;
    }
    write_feature_journal(folder_, *found);  // removes what a write that was cut short left beside
    journal_ = *found;
    done_ = journal_.num_bytes;
    return true;
  }

  // The first pass.
  void begin() {
    encoder_.reset();
    for (const auto& left : fs::directory_iterator(folder_)) fs::remove_all(left);
    // Before it is read: what changes meanwhile is found by the next call.
    journal_ = {.identity = feature_identity(options_)};
    vocabulary_.emplace(raw_->schema(), options_, on_bytes_);
    raw_->read(*vocabulary_);
    vocabulary_->close();
    journal_.num_bytes = done_;
    for (const Dictionary& dictionary : vocabulary_->dictionaries()) {
      journal_.num_categories.push_back(options_.dictionary.empty() ? dictionary.num_categories()
                                                                    : 0);
    }
    vocabulary_->write_items(folder_);
    write_dictionaries(folder_ / kDictionaryFile, vocabulary_->dictionaries());
    if (done_ >= options_.journal_bytes) keep_first_pass();
    encoder_.emplace(options_, *vocabulary_, folder_, journal_, on_bytes_);
  }

  void keep_first_pass() {
    FeatureSchema schema = vocabulary_->schema();
    schema.num_training = 1;  // not known yet, and none is refused
    schema.num_validation = 0;
    write_file_atomically(folder_ / kSchemaFile, to_json(schema));
    write_feature_journal(folder_, journal_);
  }

  const PrepareFeaturesOptions& options_;
  fs::path folder_;
  std::unique_ptr<RawData> raw_;
  std::function<void(int64_t)> on_bytes_{};
  int64_t done_ = 0;  // bytes of the input, in both passes
  FeatureJournal journal_{};
  std::optional<Vocabulary> vocabulary_{};
  std::optional<Encoder> encoder_{};
};

}  // namespace

std::unique_ptr<RawData> open_raw(RawFormat format, const std::vector<std::string>& inputs,
                                  Labels labels, const FeatureSchema* schema) {
  switch (format) {
    case RawFormat::kCriteo: return open_criteo_text(inputs, labels);
    case RawFormat::kCriteoBinary: return open_criteo_binary(inputs, labels);
    case RawFormat::kCriteoNumpy: return open_criteo_arrays(inputs);
    case RawFormat::kCriteoMultiHot: return open_criteo_multi_hot(inputs);
    case RawFormat::kPairs: return open_pairs(inputs);
    case RawFormat::kDebian: return open_debian_depends(inputs);
    case RawFormat::kDebianSection: return open_debian_sections(inputs);
    case RawFormat::kCsv:
      TRIREME_CHECK(schema != nullptr && schema->csv,
                    "the training data was not prepared from CSV, so what its columns are is not "
                    "known; name its own format");
      return open_csv(inputs, *schema, labels);
  }
  throw InternalError("a format without a reader");
}

PrepareFeaturesReport prepare_features(const PrepareFeaturesOptions& options,
                                       const std::function<void(int64_t, int64_t)>& progress) {
  check_options(options);
  NewFolder folder(options.output, WorkFolder::Left::kKept);
  PrepareFeaturesReport report;
  leaving_work({.path = folder.path(),
                .has_journal = [&] { return has_feature_journal(folder.path()); },
                .release = [&] { folder.release(); }},
               [&] { report = FeaturePreparation(options, folder.path(), progress).run(); });
  folder.commit();
  return report;
}

}  // namespace trireme::dataset
