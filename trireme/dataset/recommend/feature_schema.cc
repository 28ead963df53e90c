#include "trireme/dataset/recommend/feature_schema.h"

#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

constexpr const char* kFormat = "trireme-features";
constexpr int64_t kVersion = 1;
constexpr int64_t kHashVersion = 2;  // tables say what their ids are
constexpr int64_t kCsvVersion = 3;   // and there is "csv"
enum class IdKind { kRows, kHash };
constexpr Choice<IdKind> kIdKinds[] = {{"rows", IdKind::kRows}, {"hash", IdKind::kHash}};
constexpr JsonLimits kLimits = {.max_bytes = 32 << 20, .max_values = 1 << 20, .max_depth = 4};

template <typename Table>
auto choice_at(const JsonView& value, const Table& table) {
  const auto* const found = find_choice(table, value.word());
  if (found == nullptr) value.fail(in_words(names_of(table)));
  return found->value;
}

std::vector<std::string> words_at(const JsonView& value) {
  std::vector<std::string> words;
  for (const JsonView& word : value.elements()) words.push_back(word.word());
  return words;
}

FeatureTable parse_table(const JsonView& value, int64_t version) {
  const bool is_hashed =
      version >= kHashVersion && choice_at(value.at("ids"), kIdKinds) == IdKind::kHash;
  return {.name = value.at("name").word(),
          .rows = is_hashed ? 0 : value.at("rows").integer(1, kMaxTableRows),
          .min_ids = value.at("min_ids").integer(0, kMaxIdsPerTable),
          .max_ids = value.at("max_ids").integer(1, kMaxIdsPerTable),
          .side = choice_at(value.at("side"), kTableSides),
          .is_hashed = is_hashed};
}

CsvForm parse_csv_form(const JsonView& value) {
  CsvForm form{.separator = choice_at(value.at("separator"), kSeparators),
               .label = value.at("label").word(),
               .dropped = words_at(value.at("dropped")),
               .missing = choice_at(value.at("missing"), kMissingNumbers),
               .missing_texts = words_at(value.at("missing_texts"))};
  for (const JsonView& number : value.at("numbers").elements()) {
    form.numbers.push_back(
        {.transform = choice_at(number.at("transform"), kNumberTransforms),
         .mean = number.at("mean").number(),
         .deviation = number.at("deviation").number(std::numeric_limits<double>::min())});
  }
  return form;
}

nlohmann::ordered_json to_object(const CsvForm& form) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const CsvNumber& number : form.numbers) {
    nlohmann::ordered_json& saved = numbers.emplace_back();
    saved["transform"] = name_of(kNumberTransforms, number.transform);
    saved["mean"] = number.mean;
    saved["deviation"] = number.deviation;
  }
  nlohmann::ordered_json object;
  object["separator"] = name_of(kSeparators, form.separator);
  object["label"] = form.label;
  object["dropped"] = form.dropped;
  object["missing"] = name_of(kMissingNumbers, form.missing);
  object["missing_texts"] = form.missing_texts;
  object["numbers"] = std::move(numbers);
  return object;
}

FeatureSchema parse_schema(const JsonView& root) {
  if (root.at("format").word() != kFormat) root.at("format").fail(concat("\"", kFormat, "\""));
  const int64_t version = root.at("version").integer(kVersion, kCsvVersion);
  FeatureSchema schema;
  schema.dense = words_at(root.at("dense"));
  for (const JsonView& table : root.at("tables").elements()) {
    schema.tables.push_back(parse_table(table, version));
  }
  schema.label = choice_at(root.at("label"), kLabelKinds);
  schema.classes = words_at(root.at("classes"));
  schema.num_training = root.at("training_samples").integer(1, kMaxSamples);
  schema.num_validation = root.at("validation_samples").integer(0, kMaxSamples);
  schema.num_items = root.at("items").integer(0, kMaxTableRows);
  schema.min_count = root.at("min_count").integer(0);
  if (version == kCsvVersion) schema.csv = parse_csv_form(root.at("csv"));
  return schema;
}

void check_range(const std::string& what, int64_t value, int64_t minimum, int64_t maximum) {
  TRIREME_CHECK(value >= minimum && value <= maximum, what, " is ", value, "; expected ", minimum,
                " to ", maximum);
}

void check_names(const std::string& what, const std::vector<std::string>& names) {
  std::set<std::string_view> known;
  for (const std::string& name : names) {
    TRIREME_CHECK(!name.empty() && is_printable(name) && is_utf8(name), what, " ", in_quotes(name),
                  " is empty, too long, not UTF-8 or has control characters; expected a name");
    TRIREME_CHECK(known.insert(name).second, what, " \"", shown(name),
                  "\" occurs twice; expected different names");
  }
}

// Every column of the table is one thing.
void check_csv_form(const CsvForm& form, const FeatureSchema& schema, const std::string& source) {
  TRIREME_CHECK(form.numbers.size() == schema.dense.size(), source, ": csv has ",
                form.numbers.size(), " numbers; expected ", schema.dense.size(),
                ", one for each dense feature");
  TRIREME_CHECK(schema.label != LabelKind::kNone && schema.num_tables(TableSide::kItem) == 0,
                source, ": csv is of samples without a label, or with items; expected labels only");
  std::vector<std::string> columns = {form.label};
  columns.insert(columns.end(), form.dropped.begin(), form.dropped.end());
  columns.insert(columns.end(), schema.dense.begin(), schema.dense.end());
  for (const FeatureTable& table : schema.tables) {
    check_range(concat(source,
                       ": table "
                       ", shown(table.name), "
                       " of csv: max_ids"),
                table.max_ids, 1, 1);
    columns.push_back(table.name);
  }
  check_names(source + ": column", columns);
  check_names(source + ": missing text", form.missing_texts);
}

void check_table(const FeatureTable& table, const std::string& source) {
  const std::string what = concat(source, ": table \"", shown(table.name), "\": ");
  check_range(what + "rows", table.rows, table.is_hashed ? 0 : 1,
              table.is_hashed ? 0 : kMaxTableRows);
  check_range(what + "max_ids", table.max_ids, 1, kMaxIdsPerTable);
  check_range(what + "min_ids", table.min_ids, 0, table.max_ids);
}

}  // namespace

int64_t FeatureSchema::num_tables(TableSide side) const {
  return std::ranges::count(tables, side, &FeatureTable::side);
}

int64_t FeatureSchema::num_ids(TableSide side) const {
  int64_t sum = 0;
  for (const FeatureTable& table : tables) sum += table.side == side ? table.max_ids : 0;
  return sum;
}

bool FeatureSchema::has_hashes() const {
  return std::ranges::any_of(tables, &FeatureTable::is_hashed);
}

void check_schema(const FeatureSchema& schema, const std::string& source) {
  check_range(source + ": the number of dense features", schema.num_dense(), 0, kMaxDense);
  check_range(source + ": the number of tables", schema.num_tables(), 0, kMaxTables);
  TRIREME_CHECK(schema.num_dense() + schema.num_tables() > 0, source,
                " has neither dense features nor tables; expected at least one");
  check_names(source + ": dense feature", schema.dense);
  std::vector<std::string> names;
  for (const FeatureTable& table : schema.tables) names.push_back(table.name);
  check_names(source + ": table", names);
  for (const FeatureTable& table : schema.tables) check_table(table, source);
  check_range(source + ": the number of ids in a sample", schema.num_ids(), 0, kMaxIdsPerSample);
  TRIREME_CHECK(std::ranges::is_sorted(schema.tables, {}, &FeatureTable::side), source,
                " has a table of queries after one of items; expected those of items last");
  TRIREME_CHECK((schema.num_items > 0) == (schema.num_tables(TableSide::kItem) > 0), source,
                " has ", schema.num_items, " items and ", schema.num_tables(TableSide::kItem),
                " tables of items; expected both or neither");
  check_range(source + ": items", schema.num_items, 0, kMaxTableRows);
  check_range(source + ": training_samples", schema.num_training, 1, kMaxSamples);
  check_range(source + ": validation_samples", schema.num_validation, 0, kMaxSamples);
  check_range(source + ": the number of classes", std::ssize(schema.classes),
              schema.label == LabelKind::kClass ? 1 : 0,
              schema.label == LabelKind::kClass ? kMaxClasses : 0);
  check_names(source + ": class", schema.classes);
  if (schema.csv) check_csv_form(*schema.csv, schema, source);
}

FeatureSchema read_schema(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kSchemaFile;
  const std::string source = path.string();
  const std::string text = as_config_error([&] { return read_file(path, kLimits.max_bytes); },
                                           "; prepare it with trireme data prepare --format");
  const nlohmann::json root = parse_json(text, source, kLimits);
  FeatureSchema schema = parse_schema(JsonView(root, source));
  check_schema(schema, source);
  return schema;
}

std::string to_json(const FeatureSchema& schema) {
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  const bool says_ids = schema.has_hashes() || schema.csv;
  for (const FeatureTable& table : schema.tables) {
    nlohmann::ordered_json& saved = tables.emplace_back();
    saved["name"] = table.name;
    if (says_ids) {
      saved["ids"] = name_of(kIdKinds, table.is_hashed ? IdKind::kHash : IdKind::kRows);
    }
    if (!table.is_hashed) saved["rows"] = table.rows;
    saved["min_ids"] = table.min_ids;
    saved["max_ids"] = table.max_ids;
    saved["side"] = name_of(kTableSides, table.side);
  }
  const int64_t version = schema.csv ? kCsvVersion : says_ids ? kHashVersion : kVersion;
  nlohmann::ordered_json root = {{"format", kFormat},
                                 {"version", version},
                                 {"dense", schema.dense},
                                 {"tables", tables},
                                 {"label", name_of(kLabelKinds, schema.label)},
                                 {"classes", schema.classes},
                                 {"training_samples", schema.num_training},
                                 {"validation_samples", schema.num_validation},
                                 {"items", schema.num_items},
                                 {"min_count", schema.min_count}};
  if (schema.csv) root["csv"] = to_object(*schema.csv);
  return root.dump(1) + "\n";
}

}  // namespace trireme::dataset
