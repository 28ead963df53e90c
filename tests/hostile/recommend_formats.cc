// Prepared folders of recommendation data, and the raw formats from which they are made.
#include <algorithm>
#include <map>
#include <span>

#include <ATen/ATen.h>

#include "tests/dataset/file/npy.h"
#include "tests/harness/zip.h"
#include "tests/hostile/format.h"
#include "tests/hostile/zip_damage.h"
#include "trireme/base/error.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/dataset/rows/feature_rows.h"

namespace trireme::hostile {
namespace {

namespace fs = std::filesystem;

using dataset::RawFormat;

constexpr const char* kPairs =
    "query\tquery.seen*\titem\titem.tags*\nann\ta|b\tbook\told\nben\t\tpen\t\nann\tb\tpen\tred|x\n";
constexpr const char* kDebian =
    "Package: foo\nInstalled-Size: 9\nMaintainer: Ann\nDepends: bar (>= 1) | baz, libc6\n"
    "Description: a foo\n more\nTag: a::b,\n c::d\nSection: games\nPriority: optional\n\n"
    "Package: bar\nSection: libs\nDepends: foo\n";

std::string criteo_text() {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += i == 0 ? "1" : "0";
    for (int d = 0; d < 13; ++d) text += concat("\t", d * i - 2);
    for (int t = 0; t < 26; ++t) text += concat("\t", t == 3 ? "" : "0f", i);
    text += "\n";
  }
  return text;
}

const char* raw_text(RawFormat format) {
  static const std::string criteo = criteo_text();
  if (format == RawFormat::kPairs) return kPairs;
  return format == RawFormat::kCriteo ? criteo.c_str() : kDebian;
}

// Reads everything that a prepared folder says it has.
void use(const fs::path& folder) {
  dataset::FeatureData data;
  const bool opened = expect_refusal_or_sense([&] { data = dataset::open_features(folder); });
  if (!opened) return;
  const auto check = [&](const dataset::NamedTensors& sample, int64_t num_tables) {
    const at::Tensor ids = dataset::find_tensor(sample, "ids");
    const at::Tensor lengths = dataset::find_tensor(sample, "lengths");
    if (num_tables == 0) return;
    require(lengths.numel() == num_tables, "another number of tables");
    const int64_t* id = ids.const_data_ptr<int64_t>();
    const auto first = static_cast<size_t>(data.schema.num_tables() - num_tables);
    for (int64_t t = 0; t < num_tables; ++t) {
      for (int64_t i = 0; i < lengths.const_data_ptr<int64_t>()[t]; ++i, ++id) {
        require(id < ids.const_data_ptr<int64_t>() + ids.numel(), "more ids than there are");
        const dataset::FeatureTable& table = data.schema.tables[first + static_cast<size_t>(t)];
        require(table.is_hashed || (*id >= 0 && *id < table.rows), "an id beyond its table");
      }
    }
  };
  for (const auto* source : {data.training.get(), data.validation.get()}) {
    for (int64_t i = 0; source != nullptr && i < std::min<int64_t>(source->size(), 4); ++i) {
      expect_refusal_or_sense([&] { check(source->get(i), data.schema.num_tables()); });
    }
  }
  for (int64_t i = 0; data.items != nullptr && i < std::min<int64_t>(data.items->size(), 4); ++i) {
    expect_refusal_or_sense(
        [&] { check(data.items->get(i), data.schema.num_tables(dataset::TableSide::kItem)); });
  }
}

// Damages a file of a prepared folder.
void damage_prepared(const std::string& file, std::string& bytes, Random& random) {
  if (file.ends_with(".json")) {
    bytes = damaged_json(nlohmann::ordered_json::parse(bytes), 1, random);
  } else if (file.ends_with(".txt")) {
    damage_text(bytes, random);
  } else if (random.one_in(2) && bytes.size() >= 4) {
    put_edge(bytes, random.below(bytes.size() / 4) * 4, 4, random);
  } else {
    damage_bytes(bytes, random);
  }
}

// Files of a prepared folder are damaged; the folder is read, and is the dictionary of new data.
class Features : public Format {
 public:
  explicit Features(const fs::path& folder) : folder_(folder / "features") {
    fs::create_directories(folder_);
    using dataset::CategoryIds;
    for (const auto& [format, ids] : {std::pair{RawFormat::kPairs, CategoryIds::kRows},
                                      {RawFormat::kPairs, CategoryIds::kHash},
                                      {RawFormat::kCriteo, CategoryIds::kRows},
                                      {RawFormat::kDebianSection, CategoryIds::kHash},
                                      {RawFormat::kDebianSection, CategoryIds::kRows}}) {
      put_file(folder_ / "raw", raw_text(format));
      const fs::path output = folder_ / concat("valid", valid_.size());
      dataset::prepare_features({.format = format,
                                 .inputs = {(folder_ / "raw").string()},
                                 .output = output.string(),
                                 .ids = ids});
      auto& [known, files] = valid_.emplace_back();
      known = format;
      for (const auto& file : fs::directory_iterator(output)) {
        files[file.path().filename().string()] = get_file(file.path());
      }
    }
  }
  std::string name() const override { return "features"; }

  void write(Random& random) override {
    const auto& [format, files] = random.pick(valid_);
    format_ = format;
    fs::remove_all(folder_ / "damaged");
    fs::create_directories(folder_ / "damaged");
    const size_t chosen = random.below(files.size());
    size_t number = 0;
    for (const auto& [file, content] : files) {
      std::string bytes = content;
      if (number++ == chosen) damage_prepared(file, bytes, random);
      put_file(folder_ / "damaged" / file, bytes);
    }
  }

  void read() override {
    use(folder_ / "damaged");
    put_file(folder_ / "raw", raw_text(format_));
    fs::remove_all(folder_ / "new");
    const bool taken = expect_refusal_or_sense([&] {
      dataset::prepare_features({.format = format_,
                                 .inputs = {(folder_ / "raw").string()},
                                 .output = (folder_ / "new").string(),
                                 .dictionary = (folder_ / "damaged").string()});
    });
    require(taken == fs::exists(folder_ / "new"), "a folder of a preparation that failed");
    if (taken) use(folder_ / "new");
  }

 private:
  fs::path folder_;
  std::vector<std::pair<RawFormat, std::map<std::string, std::string>>> valid_;
  RawFormat format_ = RawFormat::kPairs;
};

// What an interrupted preparation has left is damaged, and the next goes on or begins anew.
class UnfinishedFeatures : public Format {
 public:
  explicit UnfinishedFeatures(const fs::path& folder) : folder_(folder / "unfinished") {
    fs::create_directories(folder_);
    std::string text = kPairs;
    for (int i = 0; i < 9; ++i) text += concat("ann\ta\titem", i, "\told\n");
    put_file(folder_ / "raw", text);
    try {
      dataset::prepare_features(options(), [](int64_t done, int64_t total) {
        if (done > total * 3 / 4) throw Error("interrupted");
      });
    } catch (const Error&) {  // its work stays
    }
    for (const auto& file : fs::directory_iterator(work())) {
      left_[file.path().filename().string()] = get_file(file.path());
    }
    require(left_.contains("journal.json"), "no journal");
  }
  std::string name() const override { return "unfinished-features"; }

  void write(Random& random) override {
    fs::remove_all(work());
    fs::create_directories(work());
    const size_t chosen = random.below(left_.size());
    size_t number = 0;
    for (const auto& [file, content] : left_) {
      std::string bytes = content;
      if (number++ == chosen) damage_prepared(file, bytes, random);
      put_file(work() / file, bytes);
    }
  }

  void read() override {
    fs::remove_all(folder_ / "new");
    const bool taken = expect_refusal_or_sense([&] { dataset::prepare_features(options()); });
    require(taken == fs::exists(folder_ / "new"), "a folder of a preparation that failed");
    if (taken) use(folder_ / "new");
  }

 private:
  dataset::PrepareFeaturesOptions options() const {
    return {.format = RawFormat::kPairs,
            .inputs = {(folder_ / "raw").string()},
            .output = (folder_ / "new").string(),
            .validation_fraction = 0.3,
            .journal_bytes = 1};
  }
  fs::path work() const { return folder_ / ".new.tmp"; }

  fs::path folder_;
  std::map<std::string, std::string> left_;
};

// Raw data are damaged and prepared.
class RawFeatures : public Format {
 public:
  explicit RawFeatures(const fs::path& folder) : folder_(folder / "raw-features") {
    fs::create_directories(folder_);
  }
  std::string name() const override { return "raw-features"; }

  void write(Random& random) override {
    constexpr RawFormat kFormats[] = {RawFormat::kCriteo, RawFormat::kCriteoBinary,
                                      RawFormat::kPairs, RawFormat::kDebian,
                                      RawFormat::kDebianSection};
    format_ = random.pick(kFormats);
    std::string text = raw_text(format_);
    if (format_ == RawFormat::kCriteoBinary) {
      text.assign(160 * 3, '\0');
      damage_bytes(text, random);
    } else {
      damage_text(text, random);
    }
    put_file(folder_ / "raw", text);
  }

  void read() override {
    fs::remove_all(folder_ / "new");
    const bool taken = expect_refusal_or_sense([&] {
      dataset::prepare_features({.format = format_,
                                 .inputs = {(folder_ / "raw").string()},
                                 .output = (folder_ / "new").string(),
                                 .validation_fraction = 0.3});
    });
    require(taken == fs::exists(folder_ / "new"), "a folder of a preparation that failed");
    if (taken) use(folder_ / "new");
  }

 private:
  fs::path folder_;
  RawFormat format_ = RawFormat::kPairs;
};

// Rows to predict, with or without labels, are damaged and read with the dictionary of others.
class UnlabelledRows : public Format {
 public:
  explicit UnlabelledRows(const fs::path& folder) : folder_(folder / "unlabelled") {
    fs::create_directories(folder_);
    put_file(folder_ / "valid", criteo_text());
    dataset::prepare_features(
        {.inputs = {(folder_ / "valid").string()}, .output = (folder_ / "rows").string()});
    schema_ = dataset::read_schema(folder_ / "rows");
  }
  std::string name() const override { return "unlabelled"; }

  void write(Random& random) override {
    std::string text = criteo_text();
    if (random.one_in(2)) {
      for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) text.erase(at, 2);
    }
    damage_text(text, random);
    put_file(folder_ / "raw", text);
    put_file(folder_ / "rows" / dataset::kDictionaryFile, dictionary_of(random));
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const std::vector<std::string> inputs = {(folder_ / "raw").string()};
      const auto rows = dataset::open_feature_rows(inputs, schema_, {.folder = folder_ / "rows"});
      rows->read([this](const dataset::Row& row) { use_row(row); });
    });
  }

 private:
  std::string dictionary_of(Random& random) {
    if (dictionary_.empty()) dictionary_ = get_file(folder_ / "rows" / dataset::kDictionaryFile);
    std::string text = dictionary_;
    if (random.one_in(4)) damage_text(text, random);
    return text;
  }
  void use_row(const dataset::Row& row) const {
    const at::Tensor ids = dataset::find_tensor(row.sample, "ids");
    require(ids.numel() == schema_.num_ids() && row.number > 0, "another number of ids");
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      const int64_t id = ids.const_data_ptr<int64_t>()[t];
      require(id >= 0 && id < schema_.tables[t].rows, "an id beyond its table");
    }
  }

  fs::path folder_;
  dataset::FeatureSchema schema_;
  std::string dictionary_;
};

// Arrays of a day are damaged in their headers, numbers and archive, and prepared.
class CriteoArrays : public Format {
 public:
  explicit CriteoArrays(const fs::path& folder) : folder_(folder / "arrays") {
    fs::create_directories(folder_);
    using dataset::npy_array;
    using dataset::NpyType;
    files_["day_dense.npy"] =
        npy_array(NpyType::kFloat32, 13, std::vector<float>(size_t{13} * kSamples, 0.5F));
    files_["day_labels.npy"] =
        npy_array(NpyType::kInt32, 1, std::vector<int32_t>(size_t{kSamples}, 1));
    files_["day_sparse.npy"] =
        npy_array(NpyType::kInt32, 26, std::vector<int32_t>(size_t{26} * kSamples, -7));
    for (int t = 0; t < 26; ++t) {
      const int columns = t % 3 + 1;
      entries_.push_back(
          {concat(t, ".npy"),
           npy_array(NpyType::kInt64, columns,
                     std::vector<int64_t>(static_cast<size_t>(columns * kSamples), t))});
    }
  }
  std::string name() const override { return "criteo-arrays"; }

  void write(Random& random) override {
    format_ = random.one_in(2) ? RawFormat::kCriteoNumpy : RawFormat::kCriteoMultiHot;
    std::map<std::string, std::string> files = files_;
    std::vector<harness::ZipEntry> entries = entries_;
    if (format_ == RawFormat::kCriteoNumpy || random.one_in(4)) {
      auto damaged = files.begin();
      std::advance(damaged, static_cast<std::ptrdiff_t>(random.below(files.size())));
      damage_array(damaged->second, random);
    } else if (!random.one_in(3)) {
      damage_array(random.pick(entries).data, random);
    }
    if (random.one_in(30)) files.erase(files.begin());
    harness::Zip zip = harness::make_zip(entries, random.one_in(2));
    if (random.one_in(3)) damage_zip(zip, random);
    if (random.one_in(6)) damage_bytes(zip.bytes, random);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const auto& [file, bytes] : files) put_file(folder_ / file, bytes);
    put_file(folder_ / "day_sparse_multi_hot.npz", zip.bytes);
  }

  void read() override {
    const bool taken = expect_refusal_or_sense([&] {
      dataset::prepare_features({.format = format_,
                                 .inputs = {(folder_ / "day").string()},
                                 .output = (folder_ / "new").string(),
                                 .validation_fraction = 0.3});
    });
    require(taken == fs::exists(folder_ / "new"), "a folder of a preparation that failed");
    if (taken) use(folder_ / "new");
  }

 private:
  static constexpr int kSamples = 5;

  // Of its 128 bytes of header, its numbers, or any.
  static void damage_array(std::string& bytes, Random& random) {
    constexpr size_t kHeader = 128, kText = 10;
    switch (random.below(5)) {
      case 0: {
        std::string text = bytes.substr(kText, kHeader - kText);
        damage_text(text, random);
        if (random.one_in(2)) text.resize(kHeader - kText, ' ');
        bytes.replace(kText, kHeader - kText, text);
        break;
      }
      case 1: put_edge(bytes, 6 + random.below(4), size_t{1} << random.below(3), random); break;
      case 2: {
        const size_t count = (bytes.size() - kHeader) / 4;
        put_edge(bytes, kHeader + 4 * random.below(count), 4, random);
        break;
      }
      case 3: bytes.resize(random.below(bytes.size())); break;
      default: damage_bytes(bytes, random); break;
    }
  }

  fs::path folder_;
  std::map<std::string, std::string> files_;
  std::vector<harness::ZipEntry> entries_;
  RawFormat format_ = RawFormat::kCriteoNumpy;
};

}  // namespace

void add_recommend_formats(Formats& formats, const fs::path& folder) {
  formats.push_back(std::make_unique<Features>(folder));
  formats.push_back(std::make_unique<UnfinishedFeatures>(folder));
  formats.push_back(std::make_unique<RawFeatures>(folder));
  formats.push_back(std::make_unique<UnlabelledRows>(folder));
  formats.push_back(std::make_unique<CriteoArrays>(folder));
}

}  // namespace trireme::hostile
