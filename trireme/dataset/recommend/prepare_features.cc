#include "trireme/dataset/recommend/prepare_features.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/recommend/criteo.h"
#include "trireme/dataset/recommend/criteo_arrays.h"
#include "trireme/dataset/recommend/csv_data.h"
#include "trireme/dataset/recommend/debian.h"
#include "trireme/dataset/recommend/dictionary.h"
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
  Encoder(const PrepareFeaturesOptions& options, Vocabulary& vocabulary, const fs::path& folder,
          Progress progress)
      : RawPass(options.seed, options.validation_fraction, std::move(progress)),
        vocabulary_(vocabulary),
        schema_(vocabulary.schema()),
        layout_(schema_),
        training_(folder / kTrainingFile, layout_.num_bytes()),
        ids_(static_cast<size_t>(schema_.num_tables(TableSide::kQuery))) {
    if (options.validation_fraction > 0) {
      validation_.emplace(folder / kValidationFile, layout_.num_bytes());
    }
  }

  void on_item(std::string_view /*key*/, const Categories& /*categories*/) override {}

  void on_sample(const RawSample& sample) override {
    RecordWriter& writer = is_for_validation(sample) ? *validation_ : training_;
    const std::span<std::byte> record = writer.next();
    for (size_t t = 0; t < ids_.size(); ++t) {
      const size_t count =
          std::min(sample.categories[t].size(), static_cast<size_t>(schema_.tables[t].max_ids));
      ids_[t].resize(count);
      for (size_t i = 0; i < count; ++i) {
        ids_[t][i] = vocabulary_.id_of(t, sample.categories[t][i]);
        ++num_ids;
        num_rare_ids += ids_[t][i] == 0 && !schema_.tables[t].is_hashed ? 1 : 0;
      }
    }
    layout_.ids.pack(ids_, record);
    if (!sample.dense.empty()) {
      std::memcpy(record.data() + layout_.dense_at, sample.dense.data(),
                  sample.dense.size() * sizeof(float));
    }
    if (schema_.num_items > 0) {
      const int64_t item = vocabulary_.item(sample.item);
      TRIREME_CHECK(item >= 0, "the input changed while it was read; prepare it again");
      store_number(record, layout_.item_at, static_cast<uint32_t>(item));
    }
    if (schema_.label == LabelKind::kBinary) {
      store_number(record, layout_.label_at, static_cast<float>(sample.label));
    } else if (schema_.label == LabelKind::kClass) {
      store_number(record, layout_.label_at,
                   static_cast<int32_t>(vocabulary_.class_of(sample.class_name)));
    }
  }

  void finish(const fs::path& folder) {
    schema_.num_training = training_.finish();
    schema_.num_validation = validation_ ? validation_->finish() : 0;
    TRIREME_CHECK(schema_.num_training > 0, "no sample is for training; give more data");
    TRIREME_CHECK(!validation_ || schema_.num_validation > 0, "of ", schema_.num_training,
                  " samples none is for validation; give more data, another --seed or "
                  "--validation-fraction 0");
    check_schema(schema_, "the input");
    write_dictionaries(folder / kDictionaryFile, vocabulary_.dictionaries());
    write_file_atomically(folder / kSchemaFile, to_json(schema_));
    read_schema(folder);  // what it would refuse, such as too many classes, does not appear
  }

  int64_t num_ids = 0;
  int64_t num_rare_ids = 0;

 private:
  Vocabulary& vocabulary_;
  FeatureSchema& schema_;
  SampleLayout layout_;
  RecordWriter training_;
  std::optional<RecordWriter> validation_;
  std::vector<std::vector<int64_t>> ids_;
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
  NewFolder folder(options.output);
  std::unique_ptr<RawData> raw = open_input(options);
  check_columns(raw->schema());
  int64_t done = 0;
  const auto on_bytes = [&](int64_t num_bytes) {
    done += num_bytes;
    if (progress) progress(done, 2 * raw->num_bytes());
  };
  Vocabulary vocabulary(raw->schema(), options, on_bytes);
  raw->read(vocabulary);
  const int64_t num_bytes = done;
  vocabulary.close();
  vocabulary.write_items(folder.path());
  // The first pass has found the statistics of transforms.
  if (vocabulary.schema().csv) {
    raw = open_raw(options.format, options.inputs, Labels::kRequired, &vocabulary.schema());
  }
  Encoder encoder(options, vocabulary, folder.path(), on_bytes);
  raw->read(encoder);
  TRIREME_CHECK(done - num_bytes == num_bytes, "the input had ", num_bytes,
                " bytes when it was read first and ", done - num_bytes,
                " the second time; expected files that stay as they are: prepare it again");
  encoder.finish(folder.path());
  folder.commit();

  PrepareFeaturesReport report{.schema = vocabulary.schema(),
                               .num_ids = encoder.num_ids,
                               .num_rare_ids = encoder.num_rare_ids,
                               .num_bytes = raw->num_bytes()};
  for (const Dictionary& dictionary : vocabulary.dictionaries()) {
    report.num_categories.push_back(options.dictionary.empty() ? dictionary.num_categories() : 0);
  }
  return report;
}

}  // namespace trireme::dataset
