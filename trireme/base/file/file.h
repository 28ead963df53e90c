// File access. Files are written completely or not at all, and are on the disk when the call
// returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace trireme {

// An owned file descriptor.
// The destructor closes it. A negative descriptor means none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }
  // Returns what ::close() returns, because writes that the kernel delayed may fail here. Returns 0
  // when there is none.
  int close() { return is_open() ? ::close(release()) : 0; }

 private:
  int fd_;
};

// File access. Files are written completely or not at all, and are on the disk when the call
// returns.
// A regular file opened for writing. The destructor closes it. A new file gets the permissions that
// the umask leaves. Every failure throws Error with the path and the reason.
class OutputFile {
 public:
  // Creates or truncates `path`. With `append`, keeps the content.
  explicit OutputFile(const std::filesystem::path& path, bool append = false);

  void write(const void* data, size_t num_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();   // fsync: the bytes are on the disk when it returns
  void close();  // also reports errors of delayed writes

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// Whether `path` is a regular file. False too if that cannot be found out: the name is too long, or
// a folder of it may not be read.
bool is_file(const std::filesystem::path& path);

// Opens a regular file for reading. Anything else under that name (a folder, FIFO, socket, device)
// fails at once instead of waiting for its other end.
// Throws: Error with path and reason
Descriptor open_regular_file(const std::filesystem::path& path);

// A file mapped read-only. The destructor unmaps it. An empty file maps to an empty span.
// Throws: as open_regular_file(); also for a file larger than max_bytes, or one with content but
//         size 0, like those of /proc
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

// A file opened for reading at any offset, from any thread. If another process truncates the file,
// a read past the new end throws. A mapping would kill the process.
class InputFile {
 public:
  // Throws: as open_regular_file()
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  uint64_t num_bytes() const { return num_bytes_; }  // at the time it was opened

  // Fills `out` with the bytes from `offset` on.
  // Throws: Error with path and reason; when the file ends too early, also with the size it had
  //         when it was opened
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  uint64_t num_bytes_ = 0;
};

// Limit for files that are read into memory whole: configs, manifests, tokenizers, metrics.
inline constexpr uint64_t kMostReadBytes = uint64_t{1} << 30;
// Reads to the end.
// Throws: as open_regular_file(); also when a read fails or the file is larger than max_bytes
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = kMostReadBytes);

// Writes a temporary file beside `path`, syncs it and renames it. Readers see either the old
// content or the new. On failure the old content stays and the temporary file is removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Allocates disk space for [offset, offset + num_bytes) now, so that a full disk fails here and not
// at a later write. Retries after signals. Returns 0 or an errno value.
int reserve_space(int fd, int64_t offset, int64_t num_bytes);

// Makes `folder` and its missing parents. Syncs their parents, so the folders survive a power loss.
// Syncs the parent of an existing folder too, because its maker may have been killed before.
// Throws: Error with the path and the reason
void make_folders(const std::filesystem::path& folder);

// fsyncs a folder. This makes renames and new files in it durable.
void sync_folder(const std::filesystem::path& folder);

// 64-bit checksum (XXH3) of a block of bytes, as 16 hexadecimal digits.
std::string checksum(std::span<const std::byte> bytes);
// The checksum of a whole file, read in pieces.
// Throws: as InputFile::read()
std::string checksum(const InputFile& file);

// Identifies the file or folder at a path, to find out whether it was moved, removed or replaced.

// Unique among files and folders as long as someone keeps this one open.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Follows links. Costs one stat. Empty when nothing is found there.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path);

// The identity of an open descriptor, and its current absolute path; empty when it was removed.
std::optional<FileIdentity> identity_of(int descriptor);
std::filesystem::path place_of(int descriptor);

}  // namespace trireme
