#include "trireme/dataset/recommend/feature_journal.h"

#include <bit>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/prepare_features.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJournalVersion = 1;
constexpr JsonLimits kJournalLimits{.max_bytes = uint64_t{4} << 20};

fs::path feature_journal_path(const fs::path& folder) { return folder / "journal.json"; }

// The parts of an identity, each with its length, so that no two lists of them are alike.
class IdentityText {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    const std::string part = concat(values...);
    text_ += concat(part.size(), ":", part, "\n");
  }
  void add_list(const std::vector<std::string>& items) {
    add(items.size());
    for (const std::string& item : items) add(item);
  }
  void add_file(const fs::path& path) {
    std::error_code failure;
    const auto time = fs::last_write_time(path, failure).time_since_epoch().count();
    const auto size = fs::file_size(path, failure);
    TRIREME_CHECK(!failure, "cannot read ", path.string(), ": ", failure.message());
    add(path.filename().string(), " ", size, " ", time);
  }
  // The files of a folder whose names begin so.
  void add_files(const fs::path& folder, const std::string& prefix) {
    std::set<fs::path> found;
    std::error_code failure;
    for (fs::directory_iterator item(folder, failure), end; !failure && item != end;
         item.increment(failure)) {
      std::error_code ignored;
      if (item->path().filename().string().starts_with(prefix) && item->is_regular_file(ignored))
        found.insert(item->path());
    }
    TRIREME_CHECK(!failure, "cannot read folder ", folder.string(), ": ", failure.message());
    add(found.size());
    for (const fs::path& path : found) add_file(path);
  }

  Digest digest() const { return digest_of(std::as_bytes(std::span(text_))); }

 private:
  std::string text_{};
};

FeatureJournal parse_feature_journal(const JsonView& root, const Digest& identity) {
  root.at("version").integer(kJournalVersion, kJournalVersion);
  FeatureJournal journal{.identity = identity,
                         .num_bytes = root.at("bytes").integer(0),
                         .num_categories = root.at("categories").integers(0)};
  journal.num_samples = root.at("samples").integer(0);
  journal.num_training = root.at("training").integer(0, journal.num_samples);
  const int64_t rest = journal.num_samples - journal.num_training;
  journal.num_validation = root.at("validation").integer(rest, rest);
  journal.num_ids = root.at("ids").integer(0);
  journal.num_rare_ids = root.at("rare_ids").integer(0, journal.num_ids);
  return journal;
}

}  // namespace

Digest feature_identity(const PrepareFeaturesOptions& options) {
  IdentityText text;
  text.add(kJournalVersion, " ", static_cast<int>(options.format), " ",
           static_cast<int>(options.ids), " ", options.min_count, " ", options.seed, " ",
           std::bit_cast<uint64_t>(options.validation_fraction));
  const CsvColumns& columns = options.columns;
  for (const auto* list :
       {&columns.numeric, &columns.category, &columns.drop, &columns.missing_texts}) {
    text.add_list(*list);
  }
  text.add(columns.label);
  text.add(static_cast<int>(columns.label_kind), " ", static_cast<int>(columns.transform), " ",
           static_cast<int>(columns.missing), " ", static_cast<int>(columns.separator));
  text.add(options.inputs.size());
  for (const std::string& input : options.inputs) {
    const fs::path path = fs::absolute(input);
    text.add(path.string());
    if (is_file(path)) {
      text.add_file(path);
    } else {  // of arrays what the names of their files begin with
      text.add_files(path.parent_path(), path.filename().string());
    }
  }
  text.add(options.dictionary);
  if (!options.dictionary.empty()) text.add_files(options.dictionary, "");
  return text.digest();
}

bool has_feature_journal(const fs::path& folder) { return is_file(feature_journal_path(folder)); }

std::optional<FeatureJournal> read_feature_journal(const fs::path& folder, const Digest& identity) {
  const fs::path path = feature_journal_path(folder);
  if (!is_file(path)) return std::nullopt;
  const std::string source = path.string();
  try {
    const nlohmann::json json =
        parse_json(read_file(path, kJournalLimits.max_bytes), source, kJournalLimits);
    const JsonView root(json, source);
    if (root.at("identity").text() != to_text(identity)) return std::nullopt;
    return parse_feature_journal(root, identity);
  } catch (const Error&) {  // a preparation begins anew
    return std::nullopt;
  }
}

void write_feature_journal(const fs::path& folder, const FeatureJournal& journal) {
  const nlohmann::json json = {
      {"version", kJournalVersion},           {"identity", to_text(journal.identity)},
      {"bytes", journal.num_bytes},           {"categories", journal.num_categories},
      {"samples", journal.num_samples},       {"training", journal.num_training},
      {"validation", journal.num_validation}, {"ids", journal.num_ids},
      {"rare_ids", journal.num_rare_ids}};
  write_file_atomically(feature_journal_path(folder), json.dump() + "\n");
}

void remove_feature_journal(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(feature_journal_path(folder), ignored);
}

}  // namespace trireme::dataset
