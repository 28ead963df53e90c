#include "trireme/dataset/recommend/csv_columns.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"

namespace trireme::dataset {
namespace {

enum class Role { kNumeric, kCategory, kDrop, kLabel };
constexpr Choice<Role> kRoles[] = {{"numeric", Role::kNumeric},
                                   {"category", Role::kCategory},
                                   {"drop", Role::kDrop},
                                   {"label", Role::kLabel}};

// A name or pattern of one of the lists.
struct Entry {
  Role role = Role::kNumeric;
  std::string pattern{};
  NumberTransform transform = NumberTransform::kLog;

  std::string shown_with_role() const {
    return concat("--", name_of(kRoles, role), " ", shown(pattern));
  }
};

Entry numeric_entry(const std::string& text, NumberTransform transform) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    const auto* const own = find_choice(kNumberTransforms, text.substr(colon + 1));
    if (own != nullptr) return {Role::kNumeric, text.substr(0, colon), own->value};
  }
  return {Role::kNumeric, text, transform};
}

std::vector<Entry> entries_of(const CsvColumns& columns) {
  std::vector<Entry> entries;
  for (const std::string& text : columns.numeric) {
    entries.push_back(numeric_entry(text, columns.transform));
  }
  for (const std::string& text : columns.category) entries.push_back({Role::kCategory, text});
  for (const std::string& text : columns.drop) entries.push_back({Role::kDrop, text});
  entries.push_back({Role::kLabel, columns.label});
  return entries;
}

void check_header(const std::vector<std::string>& header, const std::string& path) {
  std::set<std::string_view> known;
  for (size_t i = 0; i < header.size(); ++i) {
    const std::string& name = header[i];
    TRIREME_CHECK(!name.empty() && is_printable(name) && is_utf8(name), path, ":1: column ", i + 1,
                  " is named \"", shown(name),
                  "\", which is empty, too long, not UTF-8 or has control characters; expected a "
                  "line of column names");
    TRIREME_CHECK(known.insert(name).second, path, ":1: column ", i + 1, " is the second named \"",
                  shown(name), "\"; expected different names");
  }
}

// Entries that name nothing are mistakes, which would be found after training.
void check_entries(const std::vector<Entry>& entries, const std::vector<std::string>& header,
                   const std::string& path) {
  for (const Entry& entry : entries) {
    const bool is_there = std::ranges::any_of(header, [&](const std::string& name) {
      return name == entry.pattern || (entry.role != Role::kLabel && matches(entry.pattern, name));
    });
    TRIREME_CHECK(is_there, path, ":1 has no column for ", entry.shown_with_role(),
                  did_you_mean(header, entry.pattern), "; expected one of ",
                  shown(joined(header), 400));
  }
}

// The entry that decides what a column is.
const Entry& entry_of(const std::string& name, size_t number, const std::vector<Entry>& entries,
                      const std::string& path) {
  const auto chosen = [&](auto fits) {
    const Entry* found = nullptr;
    for (const Entry& entry : entries) {
      if (!fits(entry)) continue;
      TRIREME_CHECK(found == nullptr, path, ":1: column ", number, " (", shown(name), ") is both ",
                    found->shown_with_role(), " and ", entry.shown_with_role(),
                    "; expected one: write its name into the one list that it is for");
      found = &entry;
    }
    return found;
  };
  const Entry* found = chosen([&](const Entry& entry) { return entry.pattern == name; });
  if (found == nullptr) {
    found = chosen([&](const Entry& entry) {
      return entry.role != Role::kLabel && matches(entry.pattern, name);
    });
  }
  TRIREME_CHECK(found != nullptr, path, ":1: column ", number, " (", shown(name),
                ") is in no list; expected it in --numeric, --category, --label or --drop");
  return *found;
}

}  // namespace

FeatureSchema csv_schema(const CsvColumns& columns, const std::vector<std::string>& header,
                         const std::string& path) {
  TRIREME_CHECK(!columns.label.empty(), "no column is the label; name it with --label");
  TRIREME_CHECK(columns.label_kind != LabelKind::kNone,
                "label_kind is none; expected binary or "
                "class");
  check_header(header, path);
  const std::vector<Entry> entries = entries_of(columns);
  check_entries(entries, header, path);
  FeatureSchema schema{.label = columns.label_kind};
  CsvForm form{.separator = columns.separator,
               .label = columns.label,
               .missing = columns.missing,
               .missing_texts = columns.missing_texts};
  for (size_t i = 0; i < header.size(); ++i) {
    const Entry& entry = entry_of(header[i], i + 1, entries, path);
    switch (entry.role) {
      case Role::kNumeric:
        schema.dense.push_back(header[i]);
        form.numbers.push_back({.transform = entry.transform});
        break;
      case Role::kCategory: schema.tables.push_back({.name = header[i]}); break;
      case Role::kDrop: form.dropped.push_back(header[i]); break;
      case Role::kLabel: break;
    }
  }
  schema.csv = std::move(form);
  return schema;
}

}  // namespace trireme::dataset
