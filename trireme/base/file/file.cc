#include "trireme/base/file/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/base/file/xxh3.h"

namespace trireme {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path) {
  const int code = errno;
  throw Error(concat(what, " ", path.string(), ": ", std::strerror(code)));
}

// Throws unless it is a regular file.
void check_regular(int fd, std::string_view what, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail(what, path);
  if (S_ISREG(status.st_mode)) return;
  errno = EISDIR;
  if (S_ISDIR(status.st_mode)) fail(what, path);
  const char* kind = S_ISFIFO(status.st_mode) ? "a pipe" : "a device";
  throw Error(concat(what, " ", path.string(), ": it is ", kind, "; expected a regular file"));
}

void check_size(uint64_t num_bytes, const std::filesystem::path& path, uint64_t max_bytes) {
  if (num_bytes <= max_bytes) return;
  throw Error(concat("cannot read ", path.string(), ": it has ", num_bytes,
                     " bytes; expected at most ", max_bytes));
}

uint64_t size_of(int fd, const std::filesystem::path& path, uint64_t max_bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail("cannot read", path);
  check_size(status.st_size, path, max_bytes);
  return status.st_size;
}

std::string digits_of(XXH64_hash_t checksum) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(checksum));
  return digits;
}

ssize_t read_some(int fd, char* to, size_t num_bytes, const std::filesystem::path& path) {
  ssize_t count = 0;
  do {
    count = ::read(fd, to, num_bytes);
  } while (count < 0 && errno == EINTR);
  if (count < 0) fail("cannot read", path);
  return count;
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, bool append) : path_(path) {
  const int mode = append ? O_APPEND : O_TRUNC;
  file_ =
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | mode, 0666));
  if (!file_.is_open()) fail("cannot write", path_);
  check_regular(file_.get(), "cannot write", path_);
}

void OutputFile::write(const void* data, size_t num_bytes) {
  const auto* cursor = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t written = ::write(file_.get(), cursor, num_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", path_);
    cursor += written;
    num_bytes -= static_cast<size_t>(written);
  }
}

void OutputFile::sync() {
  if (::fsync(file_.get()) != 0) fail("cannot sync", path_);
}

void OutputFile::close() {
  if (file_.close() != 0) fail("cannot close", path_);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

Descriptor open_regular_file(const std::filesystem::path& path) {
  // Do not wait for the writer of a pipe or the carrier of a line.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) fail("cannot read", path);
  check_regular(file.get(), "cannot read", path);
  return file;
}

MappedFile::MappedFile(const std::filesystem::path& path, uint64_t max_bytes) {
  const Descriptor file = open_regular_file(path);
  const uint64_t size = size_of(file.get(), path, max_bytes);
  if (size == 0) {
    char byte = 0;
    if (read_some(file.get(), &byte, 1, path) == 0) return;
    throw Error(concat("cannot read ", path.string(),
                       ": it has content without a size; expected a file on a disk"));
  }
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) fail("cannot map", path);
  bytes_ = {static_cast<const std::byte*>(base), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(open_regular_file(path_)),
      num_bytes_(size_of(file_.get(), path_, MappedFile::kAnySize)) {}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot read", path_);
    if (count == 0) {
      throw Error(concat("cannot read ", path_.string(), ": it ends before byte ",
                         offset + out.size(), "; it had ", num_bytes_,
                         " bytes when it was opened"));
    }
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
}

std::string read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const Descriptor file = open_regular_file(path);
  std::string text(size_of(file.get(), path, max_bytes) + 1, '\0');
  size_t num_bytes = 0;
  // Read to the current end. The size may have changed since, and files in /proc have size 0.
  for (;;) {
    if (num_bytes == text.size()) text.resize(text.size() + std::max<size_t>(4096, num_bytes / 8));
    const ssize_t count =
        read_some(file.get(), text.data() + num_bytes, text.size() - num_bytes, path);
    if (count == 0) break;
    num_bytes += static_cast<size_t>(count);
    check_size(num_bytes, path, max_bytes);
  }
  text.resize(num_bytes);
  return text;
}

int reserve_space(int fd, int64_t offset, int64_t num_bytes) {
  int code = 0;
  do {
    code = ::posix_fallocate(fd, offset, num_bytes);
  } while (code == EINTR);
  return code;
}

void make_folders(const std::filesystem::path& folder) {
  // The parent of a relative name may be an empty path.
  std::filesystem::path path =
      std::filesystem::absolute(folder.empty() ? "." : folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  const std::filesystem::path parent = path.parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(parent, ignored)) make_folders(parent);
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int code = errno;  // the next call sets another one
    if (!std::filesystem::is_directory(path, ignored)) {
      errno = code;
      fail("cannot make the folder", path);
    }
  }
  // The parent may contain new names although this user may not open it.
  if (::access(parent.c_str(), R_OK) == 0) sync_folder(parent);
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) fail("cannot open", folder);
  if (::fsync(opened.get()) != 0) fail("cannot sync", folder);
}

std::string checksum(std::span<const std::byte> bytes) {
  return digits_of(XXH3_64bits(bytes.data(), bytes.size()));
}

namespace {

template <typename Source>
std::string checksum_in_pieces(const Source& source) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> piece(std::min(kPieceBytes, source.num_bytes()));
  for (uint64_t at = 0; at < source.num_bytes(); at += piece.size()) {
    piece.resize(std::min(kPieceBytes, source.num_bytes() - at));
    source.read(at, piece);
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
  }
  return digits_of(XXH3_64bits_digest(state.get()));
}

}  // namespace

std::string checksum(const InputFile& file) { return checksum_in_pieces(file); }
std::string checksum(const ByteSource& source) { return checksum_in_pieces(source); }

namespace {

FileIdentity identity_in(const struct stat& status) { return {status.st_dev, status.st_ino}; }

}  // namespace

std::optional<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return identity_in(status);
}

std::optional<FileIdentity> identity_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return identity_in(status);
}

std::filesystem::path place_of(int descriptor) {
  std::error_code failure;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failure);
  // The kernel appends " (deleted)" to the old path.
  const bool is_there = !failure && identity_of(path) == identity_of(descriptor);
  return is_there ? path : std::filesystem::path();
}

}  // namespace trireme
