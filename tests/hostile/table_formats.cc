// CSV tables of features, and the schema that a prepared folder keeps of them.
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/dataset/recommend/csv_columns.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/dataset/rows/feature_rows.h"

namespace trireme::hostile {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTable =
    "id,clicked,age,\"price, old\",city\n1,0,20,1.5,Bonn\n2,1,,-3e5,\"Kiel, \"\"am\nMeer\"\"\"\n"
    "3,1,NA,7,\n4,0,60,0,Bonn\n";

// The header and the rows, the readers of both, and the schema are damaged in turn.
class CsvFeatures : public Format {
 public:
  explicit CsvFeatures(const fs::path& folder) : folder_(folder / "csv-features") {
    fs::create_directories(folder_);
    std::string whole = kTable;
    whole.erase(whole.find("\nMeer"), 1);  // a category is on one line
    put_file(folder_ / "valid", whole);
    for (const auto ids : {dataset::CategoryIds::kRows, dataset::CategoryIds::kHash}) {
      dataset::PrepareFeaturesOptions options =
          options_of("valid", concat("kept", schemas_.size()));
      options.ids = ids;
      dataset::prepare_features(options);
      schemas_.push_back(get_file(fs::path(options.output) / dataset::kSchemaFile));
    }
  }
  std::string name() const override { return "csv-features"; }

  void write(Random& random) override {
    number_ = random.below(schemas_.size());
    std::string text = random.one_in(2) ? std::string(kTable) : get_file(folder_ / "valid");
    std::string schema = schemas_[number_];
    if (random.one_in(3)) {
      schema = damaged_json(nlohmann::ordered_json::parse(schema), 1, random);
    } else if (random.one_in(2)) {
      std::string rows = text.substr(text.find('\n') + 1);
      damage_text(rows, random);
      text = text.substr(0, text.find('\n') + 1) + rows;
    } else {
      damage_text(text, random);
    }
    options_ = options_of("raw", "new");
    options_.columns.transform = random.pick(dataset::kNumberTransforms).value;
    options_.columns.missing = random.pick(dataset::kMissingNumbers).value;
    options_.columns.label_kind =
        random.one_in(2) ? dataset::LabelKind::kBinary : dataset::LabelKind::kClass;
    options_.validation_fraction = random.one_in(2) ? 0.3 : 0;
    put_file(folder_ / "raw", text);
    put_file(kept() / dataset::kSchemaFile, schema);
  }

  void read() override {
    fs::remove_all(folder_ / "new");
    const bool taken = expect_refusal_or_sense([&] { dataset::prepare_features(options_); });
    require(taken == fs::exists(folder_ / "new"), "a folder of a preparation that failed");
    if (taken) use_prepared();
    expect_refusal_or_sense([&] {
      const dataset::FeatureSchema schema = dataset::read_schema(kept());
      const std::vector<std::string> inputs = {(folder_ / "raw").string()};
      const auto rows = dataset::open_feature_rows(
          inputs, schema, {.format = dataset::format_of(schema), .folder = kept()});
      rows->read([&](const dataset::Row& row) { use_row(row.sample, schema); });
    });
  }

 private:
  fs::path kept() const { return folder_ / concat("kept", number_); }
  dataset::PrepareFeaturesOptions options_of(const std::string& input,
                                             const std::string& output) const {
    return {.format = dataset::RawFormat::kCsv,
            .inputs = {(folder_ / input).string()},
            .columns = {.numeric = {"age:standard", "price*"},
                        .category = {"city"},
                        .drop = {"id"},
                        .label = "clicked",
                        .missing_texts = {"NA"}},
            .output = (folder_ / output).string()};
  }

  void use_prepared() const {
    const dataset::FeatureData data = dataset::open_features(folder_ / "new");
    for (int64_t i = 0; i < data.training->size(); ++i) {
      use_row(data.training->get(i), data.schema);
    }
  }
  static void use_row(const dataset::NamedTensors& sample, const dataset::FeatureSchema& schema) {
    const at::Tensor dense = dataset::find_tensor(sample, "dense");
    for (int64_t d = 0; d < schema.num_dense(); ++d) {
      require(std::isfinite(dense.const_data_ptr<float>()[d]), "a number that is not finite");
    }
    const at::Tensor ids = dataset::find_tensor(sample, "ids");
    for (size_t t = 0; t < schema.tables.size(); ++t) {
      const int64_t id = ids.const_data_ptr<int64_t>()[t];
      require(schema.tables[t].is_hashed || (id >= 0 && id < schema.tables[t].rows),
              "an id beyond its table");
    }
  }

  fs::path folder_;
  std::vector<std::string> schemas_;  // of prepared folders
  size_t number_ = 0;                 // of the damaged one
  dataset::PrepareFeaturesOptions options_;
};

}  // namespace

void add_table_formats(Formats& formats, const fs::path& folder) {
  formats.push_back(std::make_unique<CsvFeatures>(folder));
}

}  // namespace trireme::hostile
