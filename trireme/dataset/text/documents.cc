#include "trireme/dataset/text/documents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include <fnmatch.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/read_ahead.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::dataset {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

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

// Refuses JSON and compressed files, which must not silently become tokens.
void check_is_text(const Document& document, const fs::path& given,
                   const DocumentOptions& options) {
  if (options.as_text) return;
  const std::string problem = as_config_error([&] {
    const std::shared_ptr<const ByteSource> file =
        document.object ? document.object : local_files().open(document.path.string());
    std::string head(std::min<uint64_t>(kFormatHeadBytes, file->num_bytes()), '\0');
    file->read(0, std::as_writable_bytes(std::span(head)));
    return not_text(document.name, head);
  });
  TRIREME_CHECK(problem.empty(), given.string(), " ", problem,
                ", or take it as it is with --as-text (--exclude leaves files of a folder out)");
}

void add(const fs::path& path, std::string name, std::vector<Document>& documents) {
  std::error_code failure;
  if (fs::is_fifo(path, failure)) {
    documents.push_back({.path = path, .name = std::move(name), .is_pipe = true});
    return;
  }
  const auto size = static_cast<int64_t>(fs::file_size(path, failure));
  TRIREME_CHECK(!failure, "cannot read ", path.string(), ": ", failure.message());
  if (size > 0) documents.push_back({.path = path, .name = std::move(name), .end = size});
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

void add_object(std::unique_ptr<ByteSource> object, std::string name,
                std::vector<Document>& documents) {
  const auto size = static_cast<int64_t>(object->num_bytes());
  if (size == 0) return;
  documents.push_back({.path = object->name(), .name = std::move(name), .end = size});
  documents.back().object = std::move(object);
}

// Whether add_folder() finds a file of this name below the folder.
bool is_wanted(const std::string& name, const DocumentOptions& options) {
  const fs::path path(name);
  const bool is_left_out = std::ranges::any_of(path, [&](const fs::path& part) {
    return part.string().starts_with('.') || matches_any(part.string(), options.excludes);
  });
  return !is_left_out &&
         (options.globs.empty() || matches_any(path.filename().string(), options.globs));
}

void add_of_store(const std::string& url, const DocumentOptions& options,
                  std::vector<Document>& documents) {
  TRIREME_CHECK(options.stores, "input ", url,
                " is in a store, which this reads no files from; copy it to a disk");
  if (!url.ends_with('/')) {
    std::unique_ptr<ByteSource> object = options.stores->find(url);
    TRIREME_CHECK(object, "input ", url,
                  " does not exist: expected an object, or with \"/\" at its end a folder of them");
    return add_object(std::move(object), url.substr(url.rfind('/') + 1), documents);
  }
  const size_t first = documents.size();
  for (std::unique_ptr<ByteSource>& object : options.stores->list(url)) {
    std::string name = object->name().substr(url.size());
    if (is_wanted(name, options)) add_object(std::move(object), std::move(name), documents);
  }
  std::ranges::sort(documents.begin() + static_cast<std::ptrdiff_t>(first), documents.end(), {},
                    &Document::name);
}

}  // namespace

std::unique_ptr<ByteSource> Document::open() const {
  if (!object) return as_config_error([&] { return local_files().open(path.string()); });
  return read_ahead(object,
                    {.begin = static_cast<uint64_t>(begin), .end = static_cast<uint64_t>(end)});
}

size_t plain_prefix(std::string_view text) {
  using namespace std::string_view_literals;
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = utf8_character_bytes(text.substr(end));
    const std::string_view character = text.substr(end, length);
    if (length == 0 || character == "\0"sv || character == "\u2581"sv || character == "\u2585"sv)
      break;
    end += length;
  }
  return end;
}

size_t cut_length(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const size_t line = limit == 0 ? std::string_view::npos : text.rfind('\n', limit - 1);
  if (line != std::string_view::npos) return line + 1;
  // A character has at most four bytes. Text without a border in them is not UTF-8: cut it
  // anywhere.
  for (size_t back = 0; back < 4 && back < limit; ++back)
    if (!is_continuation(text[limit - back])) return limit - back;
  return limit;
}

std::vector<Document> find_documents(const DocumentOptions& options) {
  TRIREME_CHECK(!options.inputs.empty(), "no input: name files or folders with --input");
  std::vector<Document> documents;
  for (const std::string& input : options.inputs) {
    if (is_url(input)) {
      add_of_store(input, options, documents);
      continue;
    }
    std::error_code ignored;
    const fs::path target = fs::read_symlink(input, ignored);
    TRIREME_CHECK(fs::exists(input, ignored), "input ", input,
                  target.empty() ? "" : " is a link to " + target.string() + ", which",
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
  for (const Document& document : documents) {
    if (!document.is_pipe) check_is_text(document, document.path, options);
  }
  return documents;
}

void keep_pipes(std::vector<Document>& documents, const DocumentOptions& options,
                const fs::path& folder) {
  for (Document& document : documents) {
    if (!document.is_pipe) continue;
    const fs::path copy = folder / concat("input-", &document - documents.data());
    std::ifstream pipe(document.path, std::ios::binary);
    TRIREME_CHECK(pipe.is_open(), "cannot read ", document.path.string(), ": ",
                  std::strerror(errno));
    OutputFile file(copy);
    for (std::string piece(DocumentReader::kPieceBytes, '\0'); pipe;) {
      pipe.read(piece.data(), std::ssize(piece));
      file.write(piece.data(), static_cast<size_t>(pipe.gcount()));
      document.end += pipe.gcount();
    }
    TRIREME_CHECK(pipe.eof(), "cannot read ", document.path.string(), " to its end");
    file.close();
    const fs::path given = std::exchange(document.path, copy);
    document.is_pipe = false;
    if (document.size() > 0) check_is_text(document, given, options);
  }
  std::erase_if(documents, [](const Document& document) { return document.size() == 0; });
  TRIREME_CHECK(!documents.empty(), "no text found: ", list(options.inputs), " is empty");
}

DocumentReader::DocumentReader(const Document& document, int64_t piece_bytes)
    : file_(document.open()),
      piece_bytes_(piece_bytes),
      unread_(document.size()),
      end_(document.end) {}

std::string DocumentReader::next() {
  std::string piece = std::move(rest_);
  rest_.clear();
  const auto kept = static_cast<int64_t>(piece.size());
  // One byte more than a piece, because a cut needs to see what follows it.
  const int64_t wanted = std::min(unread_, piece_bytes_ + 1 - kept);
  piece.resize(kept + wanted);
  const auto read = [&] {
    file_->read(static_cast<uint64_t>(end_ - unread_),
                std::as_writable_bytes(std::span(piece).subspan(static_cast<size_t>(kept))));
  };
  as_config_error(read, "; did it change meanwhile?");
  unread_ -= wanted;
  const size_t size = cut_length(piece, piece_bytes_);
  rest_ = piece.substr(size);
  piece.resize(size);
  return piece;
}

}  // namespace trireme::dataset
