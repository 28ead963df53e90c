#include "trireme/dataset/file/text_lines.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/file/compressed_text.h"

namespace trireme::dataset {
namespace {

constexpr size_t kTextPieceBytes = size_t{1} << 20;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

TextLines::TextLines(const std::filesystem::path& path, TextOrigin origin, size_t max_line_bytes)
    : TextLines(as_config_error([&] { return local_files().open(path.string()); }), origin,
                max_line_bytes) {}

TextLines::TextLines(std::unique_ptr<ByteSource> file, TextOrigin origin, size_t max_line_bytes)
    : file_(std::move(file)), max_line_bytes_(max_line_bytes) {
  const std::string path = file_->name();
  TRIREME_CHECK(fill(), path, " is empty; expected lines of text");
  if (origin == TextOrigin::kOwn) return;
  const std::string_view compression = compression_of(text());
  if (!compression.empty()) {
    const std::string readable = readable_compressions();
    TRIREME_CHECK(reads_compression(compression), path, " is compressed with ", compression,
                  "; unpack it first", readable.empty() ? "" : concat(", or use ", readable));
    read_ = 0;
    end_ = 0;
    packed_ = std::make_unique<CompressedText>(
        compression, path, [this](std::span<std::byte> out) { return read_stored(out); });
    TRIREME_CHECK(fill(), path, " is empty; expected lines of text");
  }
  if (text().starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

size_t TextLines::read_stored(std::span<std::byte> out) {
  const std::span<std::byte> piece =
      out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), file_->num_bytes() - read_)));
  if (!piece.empty()) as_config_error([&] { file_->read(read_, piece); });
  read_ += piece.size();
  return piece.size();
}

std::string TextLines::where() const { return concat(file_->name(), ":", number_); }

bool TextLines::fill() {
  std::copy(room_.begin() + static_cast<std::ptrdiff_t>(at_),
            room_.begin() + static_cast<std::ptrdiff_t>(end_), room_.begin());
  end_ -= std::exchange(at_, 0);
  if (room_.size() - end_ < kTextPieceBytes) room_.resize(end_ + kTextPieceBytes);
  const std::span<char> room = std::span(room_).subspan(end_, kTextPieceBytes);
  const size_t count = packed_ ? packed_->read(room) : read_stored(std::as_writable_bytes(room));
  end_ += count;
  return count > 0;
}

bool TextLines::next(std::string_view& line) {
  size_t end = text().find('\n', at_);
  while (end == std::string::npos) {
    TRIREME_CHECK(end_ - at_ <= max_line_bytes_, file_->name(), ":", number_ + 1, " has more than ",
                  max_line_bytes_, " bytes; expected shorter lines");
    const size_t searched = end_ - at_;
    if (!fill()) break;
    end = text().find('\n', searched);
  }
  if (end == std::string::npos) {
    if (at_ == end_) return false;
    end = end_;
  }
  ++number_;
  line = text().substr(at_, end - at_);
  TRIREME_CHECK(line.size() <= max_line_bytes_, where(), " has more than ", max_line_bytes_,
                " bytes; expected shorter lines");
  if (line.ends_with('\r')) line.remove_suffix(1);
  at_ = std::min(end + 1, end_);
  return true;
}

void split_fields(std::string_view text, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  while (true) {
    const size_t end = text.find(separator);
    fields.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

namespace {

struct Magic {
  std::string_view bytes;
  std::string_view name;
};

constexpr Magic kCompressions[] = {{{"\x1f\x8b", 2}, "gzip"},
                                   {{"\x28\xb5\x2f\xfd", 4}, "zstd"},
                                   {{"\x50\x2a\x4d\x18", 4}, "zstd"},  // as pzstd begins it
                                   {{"\xfd\x37\x7a\x58", 4}, "xz"},
                                   {{"\x04\x22\x4d\x18", 4}, "lz4"},
                                   {{"BZh", 3}, "bzip2"}};
struct ColumnMagic {
  std::string_view bytes;
  std::string_view name;
  std::string_view format;
};
constexpr ColumnMagic kColumnFiles[] = {{"PAR1", "a Parquet file", "parquet"},
                                        {"ARROW1", "an Arrow file", "arrow"}};

constexpr size_t kMostLines = 8;
constexpr size_t kFewestLines = 2;  // that tell JSON lines from an object
constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

// The first lines that are not blank, without their ends. The last one may go on behind `head`.
struct FirstLines {
  std::vector<std::string_view> whole;
  std::string_view cut;
};

FirstLines first_lines(std::string_view head) {
  if (head.starts_with(kUtf8Mark)) head.remove_prefix(kUtf8Mark.size());
  const bool is_whole_file = head.size() < kFormatHeadBytes - kUtf8Mark.size();
  FirstLines lines;
  while (!head.empty() && lines.whole.size() < kMostLines) {
    const size_t end = head.find('\n');
    std::string_view line = head.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (end == std::string_view::npos && !is_whole_file) {
      lines.cut = line;
      break;
    }
    if (!is_blank_line(line)) lines.whole.push_back(line);
    head.remove_prefix(end == std::string_view::npos ? head.size() : end + 1);
  }
  return lines;
}

bool is_named(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [name](std::string_view ending) { return name.ends_with(ending); });
}

bool is_object(std::string_view line) {
  return line.starts_with('{') && nlohmann::json::accept(line);
}

bool is_json_lines(std::string_view name, const FirstLines& lines) {
  const bool is_called_so = is_named(name, {".jsonl", ".ndjson"});
  if (lines.whole.empty()) return is_called_so && lines.cut.starts_with('{');
  if (!is_called_so && lines.whole.size() < kFewestLines) return false;
  return std::ranges::all_of(lines.whole, is_object);
}

// Separators outside of quotes.
size_t num_separators(std::string_view line, char separator) {
  size_t count = 0;
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') is_quoted = !is_quoted;
    count += c == separator && !is_quoted ? 1 : 0;
  }
  return count;
}

// Source code ends its lines in a comma where a table has another cell.
bool is_table(std::string_view name, const FirstLines& lines) {
  if (lines.whole.empty()) return false;
  constexpr std::string_view kSeparators = "\t,;";
  const bool is_called_so = is_named(name, {".csv", ".tsv"});
  return std::ranges::any_of(kSeparators, [&](char separator) {
    const size_t count = num_separators(lines.whole.front(), separator);
    if (is_called_so) return count > 0;
    return count >= 2 && lines.whole.size() == kMostLines &&
           std::ranges::all_of(lines.whole, [&](std::string_view line) {
             return num_separators(line, separator) == count &&
                    (separator == '\t' || !line.ends_with(separator));
           });
  });
}

}  // namespace

std::string_view compression_of(std::string_view head) {
  for (const auto& [bytes, name] : kCompressions) {
    if (head.starts_with(bytes)) return name;
  }
  return "";
}

std::string not_text(std::string_view name, std::string_view head) {
  if (const std::string_view compression = compression_of(head); !compression.empty()) {
    const bool are_rows = name.find(".json") != std::string_view::npos ||
                          name.find(".ndjson") != std::string_view::npos;
    return concat("is compressed with ", compression, ": ",
                  are_rows && reads_compression(compression)
                      ? "read its rows with --format json-lines"
                      : "unpack it");
  }
  for (const auto& [bytes, kind, format] : kColumnFiles) {
    if (head.starts_with(bytes))
      return concat("is ", kind, ": read its rows with --format ", format);
  }
  const FirstLines lines = first_lines(head);
  if (is_json_lines(name, lines))
    return "looks like JSON lines: read the text of each with --format json-lines";
  if (is_table(name, lines))
    return "looks like a table: prepare features with another --format, or write its text into "
           "files";
  return "";
}

}  // namespace trireme::dataset
