#include "trireme/dataset/image/tar_entries.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

constexpr uint64_t kBlock = 512;
// A header of names and attributes in front of an entry is not longer.
constexpr uint64_t kMostAttributeBytes = 1 << 20;

using Header = std::array<char, kBlock>;

std::string_view field(const Header& header, size_t offset, size_t size) {
  const std::string_view all(header.data() + offset, size);
  return all.substr(0, std::min(all.find('\0'), size));
}

// Octal digits with spaces around them, or GNU's big-endian bytes, whose first has its highest bit
// set.
std::optional<uint64_t> number(const Header& header, size_t offset, size_t size) {
  const std::string_view bytes(header.data() + offset, size);
  uint64_t value = 0;
  if ((static_cast<uint8_t>(bytes[0]) & 0x80) != 0) {
    for (size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(i == 0 ? bytes[i] & 0x7f : bytes[i]);
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  std::string_view digits = field(header, offset, size);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  if (digits.empty()) return 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

class TarReader {
 public:
  explicit TarReader(const ByteSource& file) : file_(file) {}

  // Empty at the end of the archive.
  std::optional<TarEntry> next() {
    std::string name;
    std::optional<uint64_t> pax_size;
    while (true) {
      Header header{};
      const uint64_t at = at_;
      if (!read_header(header)) return std::nullopt;
      const auto stated = number(header, 124, 12);
      if (!stated)
        fail(at, concat("a header states no size, that of \"", shown(short_name(header)), "\""));
      const char type = header[156];
      if (type == 'x' || type == 'L' || type == 'K' || type == 'g') {
        const std::string content = read_attributes(at, *stated);
        if (type == 'L') name = content.substr(0, content.find('\0'));
        if (type == 'x') read_pax(at, content, name, pax_size);
        continue;
      }
      TarEntry entry{.name = name.empty() ? short_name(header) : std::move(name),
                     .header = at,
                     .offset = at_,
                     .size = pax_size.value_or(*stated)};
      const bool is_file = type == '0' || type == '\0' || type == '7';
      if (!is_file && type != '5') {
        fail(at, concat("\"", shown(entry.name),
                        "\" is a link, a device or a sparse file; expected "
                        "files and folders"));
      }
      check_name(at, entry.name);
      if (entry.size > file_.num_bytes() - at_) fail_truncated(at, entry);
      at_ += entry.size;
      pad();
      // Old archives have folders as files whose names end in a slash.
      if (is_file && !entry.name.ends_with('/')) return entry;
      name.clear();
      pax_size.reset();
    }
  }

 private:
  [[noreturn]] void fail(uint64_t at, std::string_view what) const {
    throw ConfigError(concat(file_.name(), " at byte ", at, ": ", what));
  }
  [[noreturn]] void fail_truncated(uint64_t at) const {
    fail(at, concat("the archive ends within an entry, after ", file_.num_bytes(),
                    " bytes; fetch it again"));
  }
  [[noreturn]] void fail_truncated(uint64_t at, const TarEntry& entry) const {
    fail(at, concat("\"", shown(entry.name), "\" has ", entry.size,
                    " bytes by its header, and the archive ends within it, after ",
                    file_.num_bytes(), " bytes; fetch it again"));
  }

  // Nothing is unpacked, but messages and answers name the entries.
  void check_name(uint64_t at, const std::string& name) const {
    const bool leads_up = concat("/", name, "/").find("/../") != std::string::npos;
    if (!name.empty() && !leads_up) return;
    fail(at, name.empty() ? std::string("an entry without a name; expected one for each file")
                          : concat("\"", shown(name),
                                   "\" leads out of the archive; pack it without \"..\""));
  }

  // False at the end of the archive, a block of zeros.
  bool read_header(Header& header) {
    const uint64_t at = at_;
    TRIREME_CHECK(at < file_.num_bytes(), file_.name(), " has ", file_.num_bytes(),
                  " bytes and not the end of a tar archive; fetch it again");
    if (file_.num_bytes() - at < kBlock) fail_truncated(at);
    read(header.data(), kBlock);
    if (std::ranges::all_of(header, [](char c) { return c == '\0'; })) return false;
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(header[i]); };
    if (at == 0 && byte(0) == 0x1f && byte(1) == 0x8b) {
      throw ConfigError(concat(file_.name(), " is compressed; unpack it with gunzip"));
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : byte(i);
    if (number(header, 148, 8) != sum) {
      fail(at, "a header's checksum is wrong; expected a tar archive, and this one is damaged");
    }
    return true;
  }

  void read(char* to, uint64_t size) {
    as_config_error([&] { file_.read(at_, std::as_writable_bytes(std::span(to, size))); });
    at_ += size;
  }

  void pad() { at_ = std::min((at_ + kBlock - 1) / kBlock * kBlock, file_.num_bytes()); }

  std::string read_attributes(uint64_t at, uint64_t size) {
    if (size > kMostAttributeBytes) {
      fail(at, concat("a header of ", size, " bytes; expected at most ", kMostAttributeBytes));
    }
    if (size > file_.num_bytes() - at_) fail_truncated(at);
    std::string content(size, '\0');
    read(content.data(), size);
    pad();
    return content;
  }

  static std::string short_name(const Header& header) {
    const std::string name(field(header, 0, 100));
    // GNU's magic has no prefix behind it.
    if (std::memcmp(header.data() + 257, "ustar", 6) != 0) return name;
    const std::string_view prefix = field(header, 345, 155);
    return prefix.empty() ? name : concat(prefix, "/", name);
  }

  // Records "<length> <key>=<value>\n", each as long as it says.
  void read_pax(uint64_t at, std::string_view records, std::string& name,
                std::optional<uint64_t>& size) const {
    while (!records.empty()) {
      size_t length = 0;
      const auto [space, error] =
          std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(space - records.data());
      const bool fits = error == std::errc() && length <= records.size() && length > digits + 1 &&
                        *space == ' ' && records[length - 1] == '\n';
      if (!fits) fail(at, "a pax header whose records do not fit their lengths");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail(at, "a pax header with a record without value");
      const std::string_view key = record.substr(0, equals);
      const std::string_view value = record.substr(equals + 1);
      if (key == "path") name = value;
      if (key == "size") {
        uint64_t stated = 0;
        const auto [end, wrong] =
            std::from_chars(value.data(), value.data() + value.size(), stated);
        if (wrong != std::errc() || end != value.data() + value.size()) {
          fail(at, "a pax header states no size");
        }
        size = stated;
      }
    }
  }

  const ByteSource& file_;
  uint64_t at_ = 0;
};

}  // namespace

void read_tar(const ByteSource& file, const std::function<void(const TarEntry&)>& visit) {
  TarReader reader(file);
  while (const std::optional<TarEntry> entry = reader.next()) visit(*entry);
}

}  // namespace trireme::dataset
