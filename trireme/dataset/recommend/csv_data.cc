#include "trireme/dataset/recommend/csv_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/csv_lines.h"
#include "trireme/dataset/recommend/dictionary.h"

namespace trireme::dataset {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

// Without what only a prepared folder has.
FeatureSchema raw_schema(FeatureSchema schema) {
  for (FeatureTable& table : schema.tables) table = {.name = table.name};
  schema.classes.clear();
  schema.num_training = schema.num_validation = schema.min_count = 0;
  return schema;
}

// A cell and its place, which is needed for messages only.
struct Cell {
  const CsvLines& lines;
  const CsvRow& row;
  size_t column;
  const std::string& name;

  std::string_view text() const { return row.cells[column]; }
  std::string where() const {
    return concat(lines.where(), ": column ", column + 1, " (", shown(name), ")");
  }
};

double number_of(const Cell& cell) {
  const std::string_view text = cell.text();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  TRIREME_CHECK(is_number && std::isfinite(static_cast<float>(value)), cell.where(), " is \"",
                shown(text),
                "\"; expected a finite number, or a text that --missing-text says is missing");
  return value;
}

std::string_view category_of(const Cell& cell) {
  const std::string_view text = cell.text();
  TRIREME_CHECK(text.size() <= TextNumbers::kMaxTextBytes, cell.where(), " has ", text.size(),
                " bytes; expected at most ", TextNumbers::kMaxTextBytes);
  TRIREME_CHECK(text.find_first_of("\r\n") == std::string_view::npos, cell.where(), " is \"",
                shown(text), "\", with a line break; expected a category on one line");
  return text;
}

class CsvData : public RawData {
 public:
  CsvData(const std::vector<std::string>& paths, const FeatureSchema& schema, Labels labels)
      : paths_(paths), schema_(raw_schema(schema)), form_(schema.csv.value()), labels_(labels) {
    for (size_t d = 0; d < schema_.dense.size(); ++d) roles_[schema_.dense[d]] = {Use::kNumber, d};
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      roles_[schema_.tables[t].name] = {Use::kCategory, t};
    }
    for (const std::string& name : form_.dropped) roles_[name] = {Use::kNothing, 0};
    roles_[form_.label] = {Use::kLabel, 0};
    for (const std::string& path : paths_) {
      CsvLines lines(path, form_.separator);
      num_bytes_ += lines.num_bytes();
      read_header(lines, path);
    }
  }

  const FeatureSchema& schema() const override { return schema_; }
  int64_t num_bytes() const override { return num_bytes_; }

  void read(RawVisitor& visitor) const override {
    RawSample sample{.dense = std::vector<float>(schema_.dense.size()),
                     .numbers = std::vector<double>(schema_.dense.size())};
    sample.categories.assign(schema_.tables.size(), std::vector<std::string_view>(1));
    for (const std::string& path : paths_) {
      CsvLines lines(path, form_.separator);
      const Places places = read_header(lines, path);
      int64_t seen = 0;
      for (CsvRow row; lines.next(row); ++sample.group) {
        TRIREME_CHECK(row.cells.size() == places.num_columns, lines.where(), " has ",
                      row.cells.size(), " cells; expected ", places.num_columns,
                      ", as in its first line");
        fill(lines, row, places, sample);
        visitor.on_sample(sample);
        visitor.on_bytes(lines.num_read() - std::exchange(seen, lines.num_read()));
      }
      visitor.on_bytes(lines.num_read() - seen);
    }
  }

 private:
  enum class Use { kNumber, kCategory, kLabel, kNothing };
  struct Target {
    Use use = Use::kNothing;
    size_t index = 0;  // among the features of its kind
  };
  // Of a file: the columns of its features.
  struct Places {
    size_t num_columns = 0;
    std::vector<size_t> numbers{};
    std::vector<size_t> categories{};
    size_t label = kNowhere;
  };

  Places read_header(CsvLines& lines, const std::string& path) const {
    CsvRow row;
    TRIREME_CHECK(lines.next(row), path, " is empty; expected a line of column names");
    Places places{.num_columns = row.cells.size(),
                  .numbers = std::vector<size_t>(schema_.dense.size(), kNowhere),
                  .categories = std::vector<size_t>(schema_.tables.size(), kNowhere)};
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const auto found = roles_.find(std::string(row.cells[i]));
      TRIREME_CHECK(found != roles_.end(), lines.where(), ": column ", i + 1, " (",
                    shown(row.cells[i]),
                    ") is unknown; expected the columns of the training data and no others");
      const auto [use, index] = found->second;
      if (use == Use::kNothing) continue;
      size_t& place = use == Use::kNumber     ? places.numbers[index]
                      : use == Use::kCategory ? places.categories[index]
                                              : places.label;
      TRIREME_CHECK(place == kNowhere, lines.where(), ": column ", i + 1, " is the second named \"",
                    shown(row.cells[i]), "\"; expected different names");
      place = i;
    }
    check_places(lines, places);
    return places;
  }

  void check_places(const CsvLines& lines, const Places& places) const {
    const auto require = [&](size_t place, const std::string& name, const char* what) {
      TRIREME_CHECK(place != kNowhere, lines.where(), " has no column \"", shown(name), "\" (",
                    what, "); expected all columns of the training data");
    };
    for (size_t d = 0; d < schema_.dense.size(); ++d) {
      require(places.numbers[d], schema_.dense[d], "numeric");
    }
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      require(places.categories[t], schema_.tables[t].name, "category");
    }
    if (labels_ == Labels::kRequired) require(places.label, form_.label, "label");
  }

  bool is_missing(const Cell& cell) const {
    const bool is_missing =
        cell.text().empty() ||
        std::ranges::find(form_.missing_texts, cell.text()) != form_.missing_texts.end();
    TRIREME_CHECK(!is_missing || form_.missing != MissingNumbers::kRefuse, cell.where(),
                  " is missing, and the rule is --missing refuse; fill the cell, leave the row "
                  "out, or prepare the data with another rule");
    return is_missing;
  }

  void fill(const CsvLines& lines, const CsvRow& row, const Places& places,
            RawSample& sample) const {
    for (size_t d = 0; d < places.numbers.size(); ++d) {
      const Cell cell{lines, row, places.numbers[d], schema_.dense[d]};
      const CsvNumber& number = form_.numbers[d];
      const bool is_absent = is_missing(cell);
      const double stands_for = form_.missing == MissingNumbers::kMean ? number.mean : 0.0;
      sample.numbers[d] = is_absent ? std::numeric_limits<double>::quiet_NaN() : number_of(cell);
      sample.dense[d] = number.dense(is_absent ? stands_for : sample.numbers[d]);
      TRIREME_CHECK(std::isfinite(sample.dense[d]), cell.where(), " is \"", shown(cell.text()),
                    "\", too far from the mean ", number.mean, " for the deviation ",
                    number.deviation, "; expected numbers as in the training data");
    }
    for (size_t t = 0; t < places.categories.size(); ++t) {
      const Cell cell{lines, row, places.categories[t], schema_.tables[t].name};
      sample.categories[t][0] = is_missing(cell) ? std::string_view("") : category_of(cell);
    }
    if (labels_ == Labels::kRequired) read_label({lines, row, places.label, form_.label}, sample);
  }

  void read_label(const Cell& cell, RawSample& sample) const {
    const std::string_view text = cell.text();
    if (schema_.label == LabelKind::kBinary) {
      TRIREME_CHECK(text == "0" || text == "1", cell.where(), " is \"", shown(text),
                    "\"; expected the label, 0 or 1; of other labels use --label-kind class");
      sample.label = text == "1" ? 1 : 0;
      return;
    }
    TRIREME_CHECK(!text.empty() && is_printable(text) && is_utf8(text), cell.where(), " is \"",
                  shown(text),
                  "\", which is empty, too long, not UTF-8 or has control characters; expected the "
                  "name of a class");
    sample.class_name = text;
  }

  std::vector<std::string> paths_;
  FeatureSchema schema_;
  CsvForm form_;
  Labels labels_;
  std::unordered_map<std::string, Target> roles_{};  // by the name of the column
  int64_t num_bytes_ = 0;
};

}  // namespace

std::vector<std::string> csv_header(const std::string& path, char separator) {
  CsvLines lines(path, separator);
  CsvRow row;
  TRIREME_CHECK(lines.next(row), path, " is empty; expected a line of column names");
  return {row.cells.begin(), row.cells.end()};
}

std::unique_ptr<RawData> open_csv(const std::vector<std::string>& paths,
                                  const FeatureSchema& schema, Labels labels) {
  return std::make_unique<CsvData>(paths, schema, labels);
}

}  // namespace trireme::dataset
