#include "trireme/base/file/stored_zip.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "zip is little-endian");

constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr uint64_t kEntryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEnd = 0x06054b50, kLocator = 0x07064b50, kEnd64 = 0x06064b50;
constexpr uint32_t kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr uint16_t kEncrypted = 1 << 0 | 1 << 6 | 1 << 13;
constexpr uint16_t kExtra64 = 1;

// The caller has checked that the bytes are there.
template <typename T>
T number(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Whether a number of 16 or 32 bits says that the one of 64 bits holds.
template <typename T>
bool is_deferred(T value) {
  return value == static_cast<T>(~T{0});
}

bool stays_in_folder(const std::string& name) {
  if (name.empty() || name.front() == '/' || !is_printable(name) ||
      name.find('\\') != std::string::npos)
    return false;
  for (size_t begin = 0;;) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const auto part = std::string_view(name).substr(begin, end - begin);
    if (part == "." || part == "..") return false;
    if (end == name.size()) return true;
    begin = end + 1;
  }
}

// The bytes of the zip64 record among an entry's extra records; empty when there is none.
std::string_view find_extra64(std::string_view extra) {
  while (extra.size() >= 4) {
    const auto size = number<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return {};
    if (number<uint16_t>(extra, 0) == kExtra64) return extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  return {};
}

std::string name_in_quotes(std::string_view name) { return concat('"', shown(name, 200), '"'); }

}  // namespace

template <typename... Args>
void StoredZip::fail(const Args&... args) const {
  throw Error(concat(file_->path().string(), ": ", args...));
}

StoredZip::StoredZip(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size,
                     std::string_view writer)
    : file_(std::move(file)), begin_(begin), size_(size), writer_(writer) {
  if (begin > file_->num_bytes() || size > file_->num_bytes() - begin)
    fail("an archive of ", size, " bytes at byte ", begin, " of ", file_->num_bytes(),
         ": truncated or damaged");
  const Directory directory = find_directory();
  const std::string text = bytes(directory.begin, directory.size);
  std::string_view rest = text;
  std::map<uint64_t, Entry> by_header;
  for (uint64_t i = 0; i < directory.num_entries; ++i) {
    if (rest.size() < kEntryBytes || number<uint32_t>(rest, 0) != kEntry)
      fail("entry ", i, " of ", directory.num_entries,
           " is missing from the archive's directory: truncated or damaged");
    const size_t name_size = number<uint16_t>(rest, 28);
    const size_t extra_size = number<uint16_t>(rest, 30);
    const size_t total = kEntryBytes + name_size + extra_size + number<uint16_t>(rest, 32);
    if (total > rest.size()) fail("entry ", i, " reaches beyond the archive's directory: damaged");
    const std::string name(rest.substr(kEntryBytes, name_size));
    const auto [header, entry] =
        check_entry(rest, name, rest.substr(kEntryBytes + name_size, extra_size), directory);
    if (!by_header.emplace(header, entry).second || !entries_.emplace(name, entry).second)
      fail("the archive has the entry ", name_in_quotes(name), " twice: damaged");
    rest.remove_prefix(total);
  }
  if (!rest.empty()) fail(rest.size(), " surplus bytes in the archive's directory: damaged");
  check_overlap(by_header);
}

std::string StoredZip::bytes(uint64_t offset, uint64_t size) const {
  if (offset > size_ || size > size_ - offset)
    fail(size, " bytes at byte ", offset, " of an archive of ", size_, ": truncated or damaged");
  std::string bytes(size, '\0');
  file_->read(begin_ + offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// These writers put no comment after the end record, so it comes last.
StoredZip::Directory StoredZip::find_directory() const {
  if (size_ < kEndBytes)
    fail("an archive of ", size_, " bytes; expected at least ", kEndBytes,
         ": truncated or damaged");
  uint64_t end = size_ - kEndBytes;
  const std::string record = bytes(end, kEndBytes);
  if (number<uint32_t>(record, 0) != kEnd || number<uint16_t>(record, 20) != 0)
    fail("it does not end as a zip archive of ", writer_, ": truncated or damaged");
  const auto entries = number<uint16_t>(record, 10);
  const auto size = number<uint32_t>(record, 12), begin = number<uint32_t>(record, 16);
  Directory directory{.num_entries = entries, .begin = begin, .size = size};
  if (number<uint16_t>(record, 4) != 0 || number<uint16_t>(record, 8) != entries)
    fail("a part of an archive in several parts; expected a whole one");
  std::string locator;
  if (end >= kLocatorBytes) locator = bytes(end - kLocatorBytes, kLocatorBytes);
  if (!locator.empty() && number<uint32_t>(locator, 0) == kLocator) {
    end = number<uint64_t>(locator, 8);
    const std::string record64 = bytes(end, kEnd64Bytes);
    const auto choose = [&](auto narrow, size_t offset) {
      const auto wide = number<uint64_t>(record64, offset);
      if (!is_deferred(narrow) && narrow != wide)
        fail("the archive's end says ", narrow, ", its zip64 end ", wide, ": damaged");
      return wide;
    };
    if (number<uint32_t>(record64, 0) != kEnd64)
      fail("the archive's zip64 end is not at byte ", end, ": damaged");
    directory = {choose(entries, 32), choose(begin, 48), choose(size, 40)};
  }
  if (directory.begin > end || directory.size > end - directory.begin)
    fail("the archive's directory of ", directory.size, " bytes at byte ", directory.begin,
         " reaches beyond its end at ", end, ": damaged");
  if (directory.size > kMaxDirectoryBytes)
    fail("the archive's directory has ", directory.size, " bytes; expected at most ",
         kMaxDirectoryBytes);
  return directory;
}

std::pair<uint64_t, StoredZip::Entry> StoredZip::check_entry(std::string_view header,
                                                             const std::string& name,
                                                             std::string_view extra,
                                                             const Directory& directory) const {
  const auto refuse = [&](const auto&... what) {
    fail("the archive's entry ", name_in_quotes(name), " ", what...);
  };
  if (!stays_in_folder(name)) refuse("has a name that leads out of a folder; expected data/0");
  if ((number<uint16_t>(header, 8) & kEncrypted) != 0) refuse("is encrypted");
  if (number<uint16_t>(header, 10) != 0)
    refuse("is compressed; ", writer_, " does not compress: save it again with ", writer_);
  std::string_view extra64 = find_extra64(extra);
  const auto choose = [&](uint32_t narrow) -> uint64_t {
    if (!is_deferred(narrow)) return narrow;
    if (extra64.size() < sizeof(uint64_t)) refuse("lacks its zip64 record: damaged");
    const auto wide = number<uint64_t>(extra64, 0);
    extra64.remove_prefix(sizeof(uint64_t));
    return wide;
  };
  const uint64_t size = choose(number<uint32_t>(header, 24));
  const uint64_t stored_size = choose(number<uint32_t>(header, 20));
  const uint64_t local = choose(number<uint32_t>(header, 42));
  if (size != stored_size) refuse("has ", stored_size, " bytes for ", size, ": damaged");
  // The bytes in front of the directory are all that an entry may lie in.
  const uint64_t end = directory.begin;
  const uint64_t named = kLocalBytes + name.size();
  if (local > end || named > end - local) refuse("begins at byte ", local, " of ", end);
  const std::string record = bytes(local, named);
  if (number<uint32_t>(record, 0) != kLocal || number<uint16_t>(record, 8) != 0 ||
      number<uint16_t>(record, 26) != name.size() || record.substr(kLocalBytes) != name)
    refuse("has another header at its place: damaged");
  const uint64_t data = local + named + number<uint16_t>(record, 28);
  if (data > end || size > end - data)
    refuse("has ", size, " bytes at byte ", data, " of ", end, ": truncated or damaged");
  return {local, {.offset = begin_ + data, .size = size}};
}

void StoredZip::check_overlap(const std::map<uint64_t, Entry>& by_header) const {
  uint64_t end = begin_;
  for (const auto& [header, entry] : by_header) {
    if (begin_ + header < end)
      fail("entries of the archive overlap at byte ", begin_ + header, ": damaged");
    end = entry.offset + entry.size;
  }
}

const StoredZip::Entry& StoredZip::at(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail("the archive has no entry ", name_in_quotes(name), ": damaged");
  return found->second;
}

std::string StoredZip::read(const std::string& name, uint64_t max_bytes) const {
  const Entry& entry = at(name);
  if (entry.size > max_bytes)
    fail("the archive's entry ", name_in_quotes(name), " has ", entry.size,
         " bytes; expected at most ", max_bytes);
  return bytes(entry.offset - begin_, entry.size);
}

}  // namespace trireme
