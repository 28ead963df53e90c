// The entries of an uncompressed zip archive, as torch.save and numpy.savez write it. Its directory
// is checked whole before any entry is used: entries lie within the archive and do not overlap. The
// entries' checksums are not verified: torch.save may omit them, and torch.load does not verify
// them either.
// Source: PKWARE's APPNOTE.TXT 6.3.10
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/file/file.h"

namespace trireme {

// Thread safety: const methods may be called from any thread.
class StoredZip {
 public:
  struct Entry {
    uint64_t offset = 0;  // of its bytes within the file
    uint64_t size = 0;
  };
  static constexpr uint64_t kMaxDirectoryBytes = uint64_t{64} << 20;

  // The archive is the `size` bytes of the file from `begin` on. writer: who is expected to have
  // written it, for messages: "torch.save"
  // Throws: Error with the path when they are not a zip archive, when it is damaged, compressed or
  //         encrypted, or when a name leads out of a folder
  StoredZip(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size,
            std::string_view writer);

  const std::shared_ptr<const InputFile>& file() const { return file_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Throws: Error when there is no such entry, or it is larger than max_bytes
  const Entry& at(const std::string& name) const;
  std::string read(const std::string& name, uint64_t max_bytes) const;

 private:
  struct Directory {
    uint64_t num_entries = 0;
    uint64_t begin = 0;  // within the archive
    uint64_t size = 0;
  };
  // Throws: Error that begins with the path
  template <typename... Args>
  [[noreturn]] void fail(const Args&... args) const;
  Directory find_directory() const;
  // The offset of its local header within the archive, and the entry.
  std::pair<uint64_t, Entry> check_entry(std::string_view header, const std::string& name,
                                         std::string_view extra, const Directory& directory) const;
  void check_overlap(const std::map<uint64_t, Entry>& by_header) const;
  // Throws: Error when they do not lie within the archive
  std::string bytes(uint64_t offset, uint64_t size) const;

  std::shared_ptr<const InputFile> file_;
  uint64_t begin_;
  uint64_t size_;
  std::string writer_;
  std::map<std::string, Entry> entries_;
};

}  // namespace trireme
