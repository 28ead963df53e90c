#include "trireme/dataset/file/text_lines.h"

#include <algorithm>
#include <span>

#include "trireme/base/error.h"
#include "trireme/dataset/as_config_error.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kTextPieceBytes = size_t{1} << 20;
constexpr size_t kMaxLineBytes = size_t{1} << 20;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kCompressed[] = {
    {"\x1f\x8b", 2},          // gzip
    {"\xfd\x37\x7a\x58", 4},  // xz
    {"\x28\xb5\x2f\xfd", 4},  // zstd
    {"\x04\x22\x4d\x18", 4},  // lz4
    {"BZh", 3},
};

}  // namespace

TextLines::TextLines(const std::filesystem::path& path, TextOrigin origin)
    : file_(as_config_error([&] { return InputFile(path); })) {
  TRIREME_CHECK(fill(), path.string(), " is empty; expected lines of text");
  if (origin == TextOrigin::kOwn) return;
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  for (const std::string_view magic : kCompressed) {
    TRIREME_CHECK(!text_.starts_with(magic), path.string(), " is compressed; unpack it first");
  }
}

std::string TextLines::where() const { return concat(file_.path().string(), ":", number_); }

bool TextLines::fill() {
  const uint64_t left = file_.num_bytes() - read_;
  if (left == 0) return false;
  text_.erase(0, at_);
  at_ = 0;
  const size_t kept = text_.size();
  text_.resize(kept + static_cast<size_t>(std::min<uint64_t>(kTextPieceBytes, left)));
  const std::span<char> piece = std::span(text_).subspan(kept);
  as_config_error([&] { file_.read(read_, std::as_writable_bytes(piece)); });
  read_ += piece.size();
  return true;
}

bool TextLines::next(std::string_view& line) {
  size_t end = text_.find('\n', at_);
  while (end == std::string::npos) {
    TRIREME_CHECK(text_.size() - at_ <= kMaxLineBytes, file_.path().string(), ":", number_ + 1,
                  " has more than ", kMaxLineBytes, " bytes; expected shorter lines");
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
  TRIREME_CHECK(line.size() <= kMaxLineBytes, where(), " has more than ", kMaxLineBytes,
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

}  // namespace trireme::dataset::inline internal
