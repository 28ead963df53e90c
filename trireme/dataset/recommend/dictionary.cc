#include "trireme/dataset/recommend/dictionary.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::dataset {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int kLengthBits = 13;  // kMaxTextBytes and less

}  // namespace

int64_t hash_of(std::string_view category) {
  return static_cast<int64_t>(random_key(/*seed=*/0, category).value);
}

std::string_view TextNumbers::operator[](int64_t number) const {
  const uint64_t place = places_[static_cast<size_t>(number)];
  const auto length = static_cast<size_t>(place & ((1U << kLengthBits) - 1));
  const auto at = static_cast<size_t>(place >> kLengthBits);
  return {blocks_[at / kBlockBytes].get() + at % kBlockBytes, length};
}

size_t TextNumbers::slot_of(std::string_view text) const {
  size_t slot = std::hash<std::string_view>{}(text) & (slots_.size() - 1);
  while (slots_[slot] != 0 && (*this)[slots_[slot] - 1] != text) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void TextNumbers::grow() {
  slots_.assign(std::max<size_t>(64, slots_.size() * 2), 0);
  for (int64_t number = 0; number < size(); ++number) {
    slots_[slot_of((*this)[number])] = static_cast<uint32_t>(number + 1);
  }
}

int64_t TextNumbers::find(std::string_view text) const {
  return slots_.empty() ? -1 : static_cast<int64_t>(slots_[slot_of(text)]) - 1;
}

int64_t TextNumbers::add(std::string_view text) {
  const int64_t known = find(text);
  if (known >= 0) return known;
  TRIREME_CHECK(text.size() <= kMaxTextBytes, "the category \"", shown(text), "\" has ",
                text.size(), " bytes; expected at most ", kMaxTextBytes);
  TRIREME_CHECK(places_.size() < std::numeric_limits<uint32_t>::max() - 1,
                "a table has more categories than the ", places_.size(), " that are possible");
  if (places_.size() >= slots_.size() / 8 * 5) grow();
  if (blocks_.empty() || block_used_ + text.size() >= kBlockBytes) {
    blocks_.push_back(std::make_unique<char[]>(kBlockBytes));
    block_used_ = 0;
  }
  const uint64_t at = (blocks_.size() - 1) * kBlockBytes + block_used_;
  std::memcpy(blocks_.back().get() + block_used_, text.data(), text.size());
  block_used_ += text.size();
  const size_t slot = slot_of(text);
  places_.push_back(at << kLengthBits | text.size());
  slots_[slot] = static_cast<uint32_t>(places_.size());
  return size() - 1;
}

int64_t Dictionary::add(std::string_view category) {
  const int64_t number = texts_.add(category);
  counts_.resize(static_cast<size_t>(texts_.size()), 0);
  return number;
}

void Dictionary::close(int64_t min_count) {
  for (size_t number = 0; number < counts_.size(); ++number) {
    if (counts_[number] >= min_count) kept_.push_back(static_cast<uint32_t>(number));
  }
  std::ranges::sort(kept_, {}, [this](uint32_t number) { return texts_[number]; });
  rows_.assign(counts_.size(), 0);
  for (size_t i = 0; i < kept_.size(); ++i) rows_[kept_[i]] = static_cast<uint32_t>(i + 1);
}

bool Dictionary::append(std::string_view category) {
  if (texts_.find(category) >= 0) return false;
  kept_.push_back(static_cast<uint32_t>(add(category)));
  rows_.push_back(static_cast<uint32_t>(kept_.size()));
  return true;
}

int64_t Dictionary::row(std::string_view category) const {
  const int64_t number = texts_.find(category);
  return number < 0 ? 0 : row(number);
}

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

}  // namespace trireme::dataset
