#include "trireme/dataset/file/text_lines.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/dataset/file/as_config_error.h"

#ifdef TRIREME_HAVE_ZLIB
#include <zlib.h>
#endif

namespace trireme::dataset {
namespace {

constexpr size_t kTextPieceBytes = size_t{1} << 20;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

#ifdef TRIREME_HAVE_ZLIB

struct GzipText::Stream {
  z_stream state{};
  std::array<std::byte, 64 << 10> piece{};
  bool is_within_part = false;
};

bool reads_gzip() { return true; }

GzipText::GzipText(std::string path, Source source)
    : path_(std::move(path)), source_(std::move(source)), stream_(std::make_unique<Stream>()) {
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream_->state, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipText::~GzipText() { inflateEnd(&stream_->state); }

size_t GzipText::read(std::span<char> out) {
  z_stream& state = stream_->state;
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  while (state.avail_out > 0) {
    if (state.avail_in == 0) {
      state.next_in = reinterpret_cast<Bytef*>(stream_->piece.data());
      state.avail_in = static_cast<uInt>(source_(stream_->piece));
      TRIREME_CHECK(state.avail_in > 0 || !stream_->is_within_part, path_,
                    " ends in the middle of its compressed text; is it complete?");
      if (state.avail_in == 0) break;
    }
    stream_->is_within_part = true;
    const int code = inflate(&state, Z_NO_FLUSH);
    TRIREME_CHECK(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, path_,
                  " is damaged: ", state.msg != nullptr ? state.msg : "zlib cannot read it");
    if (code == Z_STREAM_END) {
      stream_->is_within_part = false;
      inflateReset(&state);
    }
  }
  return out.size() - state.avail_out;
}

#else

struct GzipText::Stream {};

bool reads_gzip() { return false; }

GzipText::GzipText(std::string path, Source source)
    : path_(std::move(path)), source_(std::move(source)) {}
GzipText::~GzipText() = default;
size_t GzipText::read(std::span<char>) { return 0; }

#endif

TextLines::TextLines(const std::filesystem::path& path, TextOrigin origin, size_t max_line_bytes)
    : file_(as_config_error([&] { return InputFile(path); })), max_line_bytes_(max_line_bytes) {
  TRIREME_CHECK(fill(), path.string(), " is empty; expected lines of text");
  if (origin == TextOrigin::kOwn) return;
  const std::string_view compression = compression_of(text_);
  const bool is_gzip = compression == "gzip" && reads_gzip();
  TRIREME_CHECK(compression.empty() || is_gzip, path.string(), " is compressed with ", compression,
                "; unpack it first", reads_gzip() ? ", or use gzip" : "");
  if (is_gzip) {
    read_ = 0;
    text_.clear();
    gzip_ = std::make_unique<GzipText>(
        path.string(), [this](std::span<std::byte> out) { return read_stored(out); });
    TRIREME_CHECK(fill(), path.string(), " is empty; expected lines of text");
  }
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

size_t TextLines::read_stored(std::span<std::byte> out) {
  const std::span<std::byte> piece =
      out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), file_.num_bytes() - read_)));
  if (!piece.empty()) as_config_error([&] { file_.read(read_, piece); });
  read_ += piece.size();
  return piece.size();
}

std::string TextLines::where() const { return concat(file_.path().string(), ":", number_); }

bool TextLines::fill() {
  text_.erase(0, at_);
  at_ = 0;
  const size_t kept = text_.size();
  text_.resize(kept + kTextPieceBytes);
  const std::span<char> room = std::span(text_).subspan(kept);
  const size_t count = gzip_ ? gzip_->read(room) : read_stored(std::as_writable_bytes(room));
  text_.resize(kept + count);
  return count > 0;
}

bool TextLines::next(std::string_view& line) {
  size_t end = text_.find('\n', at_);
  while (end == std::string::npos) {
    TRIREME_CHECK(text_.size() - at_ <= max_line_bytes_, file_.path().string(), ":", number_ + 1,
                  " has more than ", max_line_bytes_, " bytes; expected shorter lines");
    const size_t searched = text_.size() - at_;
    if (!fill()) break;
    end = text_.find('\n', searched);
  }
  if (end == std::string::npos) {
    if (at_ == text_.size()) return false;
    end = text_.size();
  }
  ++number_;
  line = std::string_view(text_).substr(at_, end - at_);
  TRIREME_CHECK(line.size() <= max_line_bytes_, where(), " has more than ", max_line_bytes_,
                " bytes; expected shorter lines");
  if (line.ends_with('\r')) line.remove_suffix(1);
  at_ = std::min(end + 1, text_.size());
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

namespace {

struct Magic {
  std::string_view bytes;
  std::string_view name;
};

constexpr Magic kCompressions[] = {{{"\x1f\x8b", 2}, "gzip"},
                                   {{"\x28\xb5\x2f\xfd", 4}, "zstd"},
                                   {{"\xfd\x37\x7a\x58", 4}, "xz"},
                                   {{"\x04\x22\x4d\x18", 4}, "lz4"},
                                   {{"BZh", 3}, "bzip2"}};
constexpr Magic kBinary[] = {{"PAR1", "Parquet"}, {"ARROW1", "an Arrow file"}};

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
    const bool is_blank = line.find_first_not_of(" \t") == std::string_view::npos;
    if (end == std::string_view::npos && !is_whole_file) {
      lines.cut = line;
      break;
    }
    if (!is_blank) lines.whole.push_back(line);
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
  if (const std::string_view compression = compression_of(head); !compression.empty())
    return concat("is compressed with ", compression, ": unpack it");
  for (const auto& [bytes, format] : kBinary) {
    if (head.starts_with(bytes)) return concat("is ", format, ": write its text into a file");
  }
  const FirstLines lines = first_lines(head);
  if (is_json_lines(name, lines))
    return "looks like JSON lines: write the text of each into a file of its own";
  if (is_table(name, lines))
    return "looks like a table: prepare features with another --format, or write its text into "
           "files";
  return "";
}

}  // namespace trireme::dataset
