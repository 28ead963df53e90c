#include "trireme/dataset/recommend/debian.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::dataset {

// All packages are read before the first is visited: a package is paired with what it depends on,
// whose section and words may stand later in the files. Only the fields that are used are kept. A
// name that packages merely provide stands for itself, without section and words. Words, tags and
// dependencies are bounded for each package, because the schema promises a largest number of them.

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;
constexpr size_t kMaxWords = 32;
constexpr size_t kMaxTags = 64;
constexpr size_t kMaxDepends = 128;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

void add_once(std::string_view text, size_t most, std::vector<std::string>& texts) {
  if (text.empty() || texts.size() == most || std::ranges::find(texts, text) != texts.end()) return;
  texts.emplace_back(text);
}

// Runs of at least two letters and digits, in lower case.
void add_words(std::string_view text, std::vector<std::string>& words) {
  std::string word;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && is_letter_or_digit(text[i])) {
      word += text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
      continue;
    }
    if (word.size() > 1) add_once(word, kMaxWords, words);
    word.clear();
  }
}

// "0ad-data (>= 0.0.26) | x, python3:any" -> 0ad-data, python3
void add_depends(std::string_view text, std::vector<std::string>& names) {
  std::vector<std::string_view> parts;
  split_fields(text, ',', parts);
  for (const std::string_view part : parts) {
    const std::string_view first = trimmed(part.substr(0, part.find('|')));
    add_once(first.substr(0, first.find_first_of(" (:[<")), kMaxDepends, names);
  }
}

void add_tags(std::string_view text, std::vector<std::string>& tags) {
  std::vector<std::string_view> parts;
  split_fields(text, ',', parts);
  for (const std::string_view part : parts) add_once(trimmed(part), kMaxTags, tags);
}

// The fields of one paragraph that are used. Description: the first line only.
using Fields = std::map<std::string, std::string, std::less<>>;
constexpr std::string_view kFields[] = {"Package",    "Section",     "Priority",
                                        "Maintainer", "Tag",         "Description",
                                        "Depends",    "Pre-Depends", "Installed-Size"};

DebianPackage package_of(const Fields& fields, const std::string& where) {
  const auto field = [&](std::string_view name) -> std::string_view {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string_view() : found->second;
  };
  DebianPackage package{.name = std::string(field("Package")),
                        .section = std::string(field("Section")),
                        .priority = std::string(field("Priority")),
                        .maintainer = std::string(field("Maintainer"))};
  TRIREME_CHECK(!package.name.empty(), where,
                ": this paragraph has no field Package; expected one per package");
  if (const std::string_view size = field("Installed-Size"); !size.empty()) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), value);
    TRIREME_CHECK(error == std::errc() && end == size.data() + size.size() && value >= 0, where,
                  ": Installed-Size is \"", shown(size), "\"; expected a whole number");
    package.installed_size = static_cast<double>(value);
  }
  add_words(package.name, package.words);
  add_words(field("Description"), package.words);
  add_tags(field("Tag"), package.tags);
  add_depends(field("Pre-Depends"), package.depends_on);
  add_depends(field("Depends"), package.depends_on);
  return package;
}

// Adds a line to the fields of its paragraph. `current`: the field that lines may continue.
void add_line(std::string_view line, const std::string& where, Fields& fields,
              std::string& current) {
  const bool continues = line.front() == ' ' || line.front() == '\t';
  const size_t colon = line.find(':');
  TRIREME_CHECK(continues ? !current.empty() : colon != std::string_view::npos && colon > 0, where,
                " is \"", shown(line), "\"; expected a field such as \"Package: name\"");
  if (!continues) {
    current = line.substr(0, colon);
    if (std::ranges::find(kFields, current) == std::end(kFields)) return;
    const bool is_new = fields.emplace(current, trimmed(line.substr(colon + 1))).second;
    TRIREME_CHECK(is_new, where, ": the field ", shown(current),
                  " occurs twice in its paragraph; expected once");
  } else if (const auto found = fields.find(current);
             found != fields.end() && current != "Description") {
    found->second += ' ';
    found->second += trimmed(line);
  }
}

// Packages in memory, and the columns that are made of them.
class DebianData : public RawData {
 public:
  explicit DebianData(const std::vector<std::string>& paths) : packages_(read_debian(paths)) {
    for (const DebianPackage& package : packages_) {
      num_bytes_ += package.num_bytes;
    }
  }
  const FeatureSchema& schema() const override { return schema_; }
  int64_t num_bytes() const override { return num_bytes_; }

 protected:
  void add_table(const char* name, size_t max_ids = 1, TableSide side = TableSide::kQuery) {
    schema_.tables.push_back({.name = name,
                              .min_ids = max_ids == 1 ? 1 : 0,
                              .max_ids = static_cast<int64_t>(max_ids),
                              .side = side});
  }
  static float size_of(const DebianPackage& package) {
    return static_cast<float>(std::log1p(package.installed_size));
  }
  static std::vector<std::string_view> views(const std::vector<std::string>& texts) {
    return {texts.begin(), texts.end()};
  }

  std::vector<DebianPackage> packages_;
  FeatureSchema schema_{.dense = {"installed_size"}};

 private:
  int64_t num_bytes_ = 0;
};

class DebianDepends : public DebianData {
 public:
  explicit DebianDepends(const std::vector<std::string>& paths) : DebianData(paths) {
    for (const char* name : {"section", "priority", "maintainer"}) add_table(name);
    add_table("words", kMaxWords);
    add_table("tags", kMaxTags);
    for (const char* name : {"item.name", "item.section"}) add_table(name, 1, TableSide::kItem);
    add_table("item.words", kMaxWords, TableSide::kItem);
    for (const DebianPackage& package : packages_) by_name_.emplace(package.name, &package);
    TRIREME_CHECK(
        std::ranges::any_of(packages_, [](const auto& p) { return !p.depends_on.empty(); }),
        paths.front(), ": no package depends on another; expected fields Depends");
  }

  void read(RawVisitor& visitor) const override {
    RawSample sample;
    for (const DebianPackage& package : packages_) {
      sample.dense = {size_of(package)};
      sample.categories = {{package.section},
                           {package.priority},
                           {package.maintainer},
                           views(package.words),
                           views(package.tags)};
      for (const std::string& name : package.depends_on) {
        visitor.on_item(name, item_of(name));
        sample.item = name;
        visitor.on_sample(sample);
      }
      ++sample.group;
      visitor.on_bytes(package.num_bytes);
    }
  }

 private:
  // A name that packages provide, such as "mail-transport-agent", has no section and no words.
  Categories item_of(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return {{name}, {""}, {}};
    return {{name}, {found->second->section}, views(found->second->words)};
  }

  std::unordered_map<std::string_view, const DebianPackage*> by_name_;
};

class DebianSections : public DebianData {
 public:
  explicit DebianSections(const std::vector<std::string>& paths) : DebianData(paths) {
    for (const char* name : {"priority", "maintainer"}) add_table(name);
    add_table("words", kMaxWords);
    add_table("tags", kMaxTags);
    add_table("depends_on", kMaxDepends);
    schema_.label = LabelKind::kClass;
    std::erase_if(packages_, [](const DebianPackage& package) { return package.section.empty(); });
    TRIREME_CHECK(!packages_.empty(), paths.front(),
                  ": no package has a section; expected fields Section");
  }

  void read(RawVisitor& visitor) const override {
    RawSample sample;
    for (const DebianPackage& package : packages_) {
      sample.dense = {size_of(package)};
      sample.categories = {{package.priority},
                           {package.maintainer},
                           views(package.words),
                           views(package.tags),
                           views(package.depends_on)};
      sample.class_name = package.section;
      visitor.on_sample(sample);
      ++sample.group;
      visitor.on_bytes(package.num_bytes);
    }
  }
};

}  // namespace

std::vector<DebianPackage> read_debian(const std::vector<std::string>& paths) {
  std::vector<DebianPackage> packages;
  std::set<std::string> names;
  int64_t num_bytes = 0;
  for (const std::string& path : paths) {
    TextLines lines(path);
    num_bytes += lines.num_bytes();
    TRIREME_CHECK(num_bytes <= kMaxBytes, path, ": the input has ", num_bytes,
                  " bytes; expected at most ", kMaxBytes);
    Fields fields;
    std::string current;
    std::string where;  // the first line of the paragraph
    int64_t begin = 0;  // its first byte
    const auto end_paragraph = [&] {
      if (where.empty()) return;
      DebianPackage package = package_of(fields, where);
      package.num_bytes = lines.num_read() - std::exchange(begin, lines.num_read());
      if (names.insert(package.name).second) packages.push_back(std::move(package));
      fields.clear();
      current.clear();
      where.clear();
    };
    for (std::string_view line; lines.next(line);) {
      if (line.empty()) {
        end_paragraph();
        continue;
      }
      if (where.empty()) where = lines.where();
      add_line(line, lines.where(), fields, current);
    }
    end_paragraph();
  }
  TRIREME_CHECK(!packages.empty(), paths.front(), " has no package; expected paragraphs of fields");
  return packages;
}

std::unique_ptr<RawData> open_debian_depends(const std::vector<std::string>& paths) {
  return std::make_unique<DebianDepends>(paths);
}

std::unique_ptr<RawData> open_debian_sections(const std::vector<std::string>& paths) {
  return std::make_unique<DebianSections>(paths);
}

}  // namespace trireme::dataset
