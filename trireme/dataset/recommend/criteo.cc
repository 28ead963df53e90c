#include "trireme/dataset/recommend/criteo.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/recommend/record_file.h"

namespace trireme::dataset {
namespace {

constexpr size_t kNumColumns = 1 + kCriteoDense + kCriteoTables;
constexpr size_t kMaxHexDigits = 16;
constexpr size_t kRecordBytes = kNumColumns * sizeof(int32_t);

class CriteoData : public RawData {
 public:
  explicit CriteoData(std::vector<std::string> paths)
      : paths_(std::move(paths)), schema_(criteo_schema()) {}
  const FeatureSchema& schema() const override { return schema_; }

 protected:
  static RawSample empty_sample() {
    RawSample sample{.dense = std::vector<float>(kCriteoDense)};
    sample.categories.assign(kCriteoTables, std::vector<std::string_view>(1));
    return sample;
  }
  std::vector<std::string> paths_;

 private:
  FeatureSchema schema_;
};

class CriteoText : public CriteoData {
 public:
  CriteoText(const std::vector<std::string>& paths, Labels labels)
      : CriteoData(paths), labels_(labels) {
    for (const std::string& path : paths_) num_bytes_ += TextLines(path).num_bytes();
  }

  int64_t num_bytes() const override { return num_bytes_; }

  void read(RawVisitor& visitor) const override {
    RawSample sample = empty_sample();
    std::vector<std::string_view> fields;
    for (const std::string& path : paths_) {
      TextLines lines(path);
      int64_t seen = 0;
      for (std::string_view line; lines.next(line); ++sample.group) {
        split_fields(line, '\t', fields);
        fill(lines, fields, sample);
        visitor.on_sample(sample);
        visitor.on_bytes(lines.num_read() - std::exchange(seen, lines.num_read()));
      }
    }
  }

 private:
  static std::string place(const TextLines& lines, size_t column, const std::string& name) {
    return concat(lines.where(), ": column ", column + 1, " (", name, ")");
  }

  void fill(const TextLines& lines, const std::vector<std::string_view>& fields,
            RawSample& sample) const {
    const bool is_required = labels_ == Labels::kRequired;
    const size_t first = !is_required && fields.size() == kNumColumns - 1 ? 0 : 1;
    TRIREME_CHECK(fields.size() == kNumColumns - 1 + first, lines.where(), " has ", fields.size(),
                  " columns; expected ", kNumColumns,
                  ", separated by tabs: the label, 13 numbers, 26 categories",
                  is_required ? "" : "; or 39, without the label");
    if (is_required) {
      TRIREME_CHECK(fields[0] == "0" || fields[0] == "1", place(lines, 0, "label"), " is \"",
                    shown(fields[0]), "\"; expected 0 or 1");
      sample.label = fields[0] == "1" ? 1 : 0;
    }
    for (size_t d = 0; d < kCriteoDense; ++d) {
      const std::string_view text = fields[first + d];
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool is_number = error == std::errc() && end == text.data() + text.size();
      TRIREME_CHECK(text.empty() || (is_number && std::isfinite(value)),
                    place(lines, first + d, schema().dense[d]), " is \"", shown(text),
                    "\"; expected a finite number, or nothing");
      sample.dense[d] = criteo_dense(value);
    }
    for (size_t t = 0; t < kCriteoTables; ++t) {
      const std::string_view text = fields[first + kCriteoDense + t];
      TRIREME_CHECK(text.size() <= kMaxHexDigits &&
                        text.find_first_not_of("0123456789abcdef") == std::string_view::npos,
                    place(lines, first + kCriteoDense + t, schema().tables[t].name), " is \"",
                    shown(text), "\"; expected at most ", kMaxHexDigits,
                    " hexadecimal digits (0-9, a-f), or nothing");
      sample.categories[t][0] = text;
    }
  }

  Labels labels_;
  int64_t num_bytes_ = 0;
};

class CriteoBinary : public CriteoData {
 public:
  CriteoBinary(const std::vector<std::string>& paths, Labels labels)
      : CriteoData(paths), labels_(labels) {
    for (const std::string& path : paths_) files_.emplace_back(path, kRecordBytes);
  }

  int64_t num_bytes() const override {
    int64_t sum = 0;
    for (const RecordFile& file : files_) sum += file.size() * static_cast<int64_t>(kRecordBytes);
    return sum;
  }

  void read(RawVisitor& visitor) const override {
    RawSample sample = empty_sample();
    std::array<std::array<char, 8>, kCriteoTables> texts{};
    std::array<int32_t, kNumColumns> values{};
    for (const RecordFile& file : files_) {
      for (int64_t i = 0; i < file.size(); ++i, ++sample.group) {
        file.read(i, std::as_writable_bytes(std::span(values)));
        const bool is_label = values[0] == 0 || values[0] == 1;
        TRIREME_CHECK(labels_ == Labels::kOptional || is_label, file.name(), ": record ", i,
                      ": the label is ", values[0], "; expected 0 or 1");
        sample.label = values[0];
        for (size_t d = 0; d < kCriteoDense; ++d) sample.dense[d] = criteo_dense(values[1 + d]);
        for (size_t t = 0; t < kCriteoTables; ++t) {
          write_criteo_category(static_cast<uint32_t>(values[1 + kCriteoDense + t]), texts[t]);
          sample.categories[t][0] = {texts[t].data(), texts[t].size()};
        }
        visitor.on_sample(sample);
        visitor.on_bytes(kRecordBytes);
      }
    }
  }

 private:
  Labels labels_;
  std::vector<RecordFile> files_{};
};

}  // namespace

FeatureSchema criteo_schema() {
  FeatureSchema schema{.label = LabelKind::kBinary};
  for (int d = 1; d <= kCriteoDense; ++d) schema.dense.push_back(concat("I", d));
  for (int t = 1; t <= kCriteoTables; ++t) schema.tables.push_back({.name = concat("C", t)});
  return schema;
}

float criteo_dense(double x) { return static_cast<float>(std::log1p(std::max(x, 0.0))); }

void write_criteo_category(uint32_t number, std::span<char, 8> text) {
  for (size_t i = 0; i < 8; ++i) text[i] = "0123456789abcdef"[number >> (28 - 4 * i) & 15];
}

std::unique_ptr<RawData> open_criteo_text(const std::vector<std::string>& paths, Labels labels) {
  return std::make_unique<CriteoText>(paths, labels);
}

std::unique_ptr<RawData> open_criteo_binary(const std::vector<std::string>& paths, Labels labels) {
  return std::make_unique<CriteoBinary>(paths, labels);
}

}  // namespace trireme::dataset
