#include "trireme/dataset/recommend/dictionary_files.h"

#include <algorithm>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kLinesAtOnce = size_t{1} << 20;

class LineWriter {
 public:
  explicit LineWriter(const std::filesystem::path& path) : file_(path) {}

  void add(std::string_view text) {
    TRIREME_CHECK(!text.ends_with('\r'), "the category \"", shown(text),
                  "\" ends in a carriage return; expected text without it");
    text_ += text;
    text_ += '\n';
    if (text_.size() >= kLinesAtOnce) flush();
  }
  void finish() {
    flush();
    file_.sync();
    file_.close();
  }

 private:
  void flush() {
    file_.write(text_);
    text_.clear();
  }
  OutputFile file_;
  std::string text_;
};

// TextLines refuses empty files, such as the dictionary of tables with one row.
class LineReader {
 public:
  LineReader(const std::filesystem::path& path, int64_t num_expected)
      : path_(path), num_expected_(num_expected) {
    if (num_expected > 0) lines_.emplace(path, TextOrigin::kOwn);
  }
  std::string_view next() {
    std::string_view line;
    TRIREME_CHECK(lines_->next(line), path_.string(), " has ", lines_->number(),
                  " lines; expected ", num_expected_, ", as in ", kSchemaFile);
    return line;
  }
  void end() {
    std::string_view line;
    TRIREME_CHECK(!lines_ || !lines_->next(line), path_.string(), " has more than the ",
                  num_expected_, " lines of ", kSchemaFile);
  }

 private:
  std::filesystem::path path_;
  int64_t num_expected_;
  std::optional<TextLines> lines_;
};

}  // namespace

void write_dictionaries(const std::filesystem::path& path,
                        const std::vector<Dictionary>& dictionaries) {
  LineWriter lines(path);
  for (const Dictionary& dictionary : dictionaries) {
    for (int64_t row = 1; row < dictionary.num_rows(); ++row) lines.add(dictionary.category(row));
  }
  lines.finish();
}

std::vector<Dictionary> read_dictionaries(const std::filesystem::path& path,
                                          const FeatureSchema& schema) {
  int64_t num_lines = 0;
  for (const FeatureTable& table : schema.tables) num_lines += std::max<int64_t>(table.rows, 1) - 1;
  LineReader lines(path, num_lines);
  std::vector<Dictionary> dictionaries;
  for (const FeatureTable& table : schema.tables) {
    Dictionary& dictionary = dictionaries.emplace_back();
    for (int64_t row = 1; row < table.rows; ++row) {
      const std::string_view category = lines.next();
      TRIREME_CHECK(dictionary.append(category), path.string(), ": the category \"",
                    shown(category), "\" of ", shown(table.name), " occurs twice");
    }
  }
  lines.end();
  return dictionaries;
}

void write_item_names(const std::filesystem::path& path, const TextNumbers& names) {
  LineWriter lines(path);
  for (int64_t item = 0; item < names.size(); ++item) lines.add(names[item]);
  lines.finish();
}

TextNumbers read_item_names(const std::filesystem::path& path, int64_t num_items) {
  LineReader lines(path, num_items);
  TextNumbers names;
  for (int64_t item = 0; item < num_items; ++item) {
    const std::string_view name = lines.next();
    TRIREME_CHECK(names.add(name) == item, path.string(), ": the item \"", shown(name),
                  "\" occurs twice");
  }
  lines.end();
  return names;
}

}  // namespace trireme::dataset::inline internal
