#include "trireme/dataset/file/journal.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxJournalBytes = 64 << 10;

fs::path journal_path(const fs::path& folder) { return folder / "journal.json"; }

}  // namespace

bool has_journal(const fs::path& work) {
  std::error_code failure;  // then there is none
  const fs::directory_iterator items(work, failure);
  return std::any_of(begin(items), end(items), [](const fs::directory_entry& item) {
    return is_file(journal_path(item.path()));
  });
}

bool go_on_from_journal(const PreparationPlace& place,
                        const std::function<void(const JsonView& journal)>& go_on) {
  std::error_code ignored;  // opening the files says more
  fs::create_directory(place.folder(), ignored);
  const fs::path path = journal_path(place.folder());
  if (!is_file(path)) return false;
  const std::string source = path.string();
  try {
    const nlohmann::json json = parse_json(read_file(path, kMaxJournalBytes), source);
    go_on(JsonView(json, source));
    return true;
  } catch (const Error&) {
    fs::remove(path, ignored);
    return false;
  }
}

void write_journal(const PreparationPlace& place, const nlohmann::json& journal) {
  write_file_atomically(
      journal_path(place.folder()),
      journal.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  std::error_code ignored;  // what stays costs room, no more
  for (const fs::directory_entry& item : fs::directory_iterator(place.work, ignored)) {
    if (item.path() != place.folder()) fs::remove_all(item.path(), ignored);
  }
}

}  // namespace trireme::dataset
