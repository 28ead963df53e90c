// Files as the project writes them: whole or not at all, and on the disk when the call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/file/descriptor.h"

namespace trireme {

// A regular file opened for writing; closed by the destructor. A new one has the permissions that
// the umask leaves. Every failure throws Error with path and reason.
class OutputFile {
 public:
  // Creates or truncates `path`; with `append`, keeps what is there.
  explicit OutputFile(const std::filesystem::path& path, bool append = false);

  void write(const void* data, size_t num_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();   // fsync: the bytes are on the disk afterwards
  void close();  // also reports what the kernel held back until now

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// Opens a regular file for reading. Whatever else has that name (a folder, FIFO, socket, device) is
// an error at once: no reader waits for the other end of one.
// Throws: Error with path and reason
Descriptor open_regular_file(const std::filesystem::path& path);

// A file mapped read-only; unmapped by the destructor. An empty file maps to an empty span.
// Throws: as open_regular_file(); also for a file larger than max_bytes, or one that has content
//         without a size, as those of /proc have
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path, uint64_t max_bytes = kAnySize);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  static constexpr uint64_t kAnySize = ~uint64_t{0};

 private:
  std::span<const std::byte> bytes_;
};

// A file opened for reading at any place, by any thread. Unlike a mapping, it outlives a file that
// others cut short: the read that misses bytes is an error.
class InputFile {
 public:
  // Throws: as open_regular_file()
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  uint64_t num_bytes() const { return num_bytes_; }  // when it was opened

  // Fills `out` with the bytes from `offset` on.
  // Throws: Error with path and reason, and the file's size where it now ends before
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  uint64_t num_bytes_ = 0;
};

// What a program keeps in memory whole: configs, manifests, tokenizers, metrics.
inline constexpr uint64_t kMostReadBytes = uint64_t{1} << 30;
// Reads to the end. Throws: as open_regular_file(); also when a read fails, or there are more than
// max_bytes
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = kMostReadBytes);

// Writes to a temporary neighbour, syncs and renames: readers see the old content or the new. On
// failure the old content stays and the neighbour is removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Takes the space of [offset, offset + num_bytes) now, however many signals come: what is too large
// is an error here, not at the first write. Returns errno's number, or 0.
int reserve_space(int fd, int64_t offset, int64_t num_bytes);

// Makes `folder` and what is missing above it, and syncs the folders that hold the new names: after
// a power loss it is still there. One that exists is synced into its parent too, as whoever made it
// may have been killed before.
// Throws: Error with the path and the reason
void make_folders(const std::filesystem::path& folder);

// fsyncs a folder, which makes renames and new files in it durable.
void sync_folder(const std::filesystem::path& folder);

// 64-bit checksum (XXH3) of a block of bytes, as 16 hexadecimal digits.
std::string checksum(std::span<const std::byte> bytes);
// Of a whole file, read in pieces.
// Throws: as InputFile::read()
std::string checksum(const InputFile& file);

}  // namespace trireme
