#include "trireme/dataset/documents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fnmatch.h>

#include "trireme/base/error.h"
#include "trireme/dataset/utf8.h"

namespace trireme::dataset::inline internal {
namespace {

namespace fs = std::filesystem;

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

void add(const fs::path& path, std::string name, std::vector<Document>& documents) {
  std::error_code failure;
  const auto size = static_cast<int64_t>(fs::file_size(path, failure));
  TRIREME_CHECK(!failure, "cannot read ", path.string(), ": ", failure.message());
  if (size > 0) documents.push_back({path, std::move(name), 0, size});
}

void add_folder(const fs::path& folder, const DocumentOptions& options,
                std::vector<Document>& documents) {
  const size_t first = documents.size();
  std::error_code failure;
  fs::recursive_directory_iterator entry(folder, failure);
  for (const fs::recursive_directory_iterator end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || matches_any(name, options.excludes)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored) &&
               (options.globs.empty() || matches_any(name, options.globs))) {
      add(entry->path(), entry->path().lexically_relative(folder).generic_string(), documents);
    }
  }
  TRIREME_CHECK(!failure, "cannot read folder ", folder.string(), ": ", failure.message());
  std::sort(documents.begin() + first, documents.end(),
            [](const Document& a, const Document& b) { return a.name < b.name; });
}

}  // namespace

std::vector<Document> find_documents(const DocumentOptions& options) {
  TRIREME_CHECK(!options.inputs.empty(), "no input: name files or folders with --input");
  std::vector<Document> documents;
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    TRIREME_CHECK(fs::exists(input, ignored), "input ", input,
                  " does not exist: expected a file or a folder");
    if (fs::is_directory(input, ignored)) {
      add_folder(input, options, documents);
    } else {
      add(input, fs::path(input).filename().string(), documents);
    }
  }
  std::erase_if(documents, [&](const Document& document) {
    return std::any_of(options.ignored.begin(), options.ignored.end(), [&](const fs::path& path) {
      std::error_code failure;
      return fs::equivalent(path, document.path, failure);
    });
  });
  TRIREME_CHECK(!documents.empty(), "no text found: ", list(options.inputs),
                " holds no file that is not empty",
                options.globs.empty() ? "" : " and matches " + list(options.globs),
                options.excludes.empty() ? "" : " outside of " + list(options.excludes),
                "; check --input, --glob and --exclude");
  return documents;
}

DocumentReader::DocumentReader(const Document& document, int64_t piece_bytes)
    : document_(document), piece_bytes_(piece_bytes), unread_(document.size()) {
  file_.open(document.path, std::ios::binary);
  TRIREME_CHECK(file_.is_open(), "cannot read ", document.path.string(), ": ",
                std::strerror(errno));
  file_.seekg(document.begin);
}

std::string DocumentReader::next() {
  std::string piece = std::move(rest_);
  rest_.clear();
  const auto kept = static_cast<int64_t>(piece.size());
  // One byte more than a piece, because a cut needs to see what follows it.
  const int64_t wanted = std::min(unread_, piece_bytes_ + 1 - kept);
  piece.resize(kept + wanted);
  file_.read(piece.data() + kept, wanted);
  TRIREME_CHECK(file_.gcount() == wanted, "cannot read ", document_.path.string(), ": ", wanted,
                " more bytes expected, ", file_.gcount(), " found; did it change meanwhile?");
  unread_ -= wanted;
  const size_t size = cut_length(piece, piece_bytes_);
  rest_ = piece.substr(size);
  piece.resize(size);
  return piece;
}

}  // namespace trireme::dataset::inline internal
