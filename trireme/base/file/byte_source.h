// Bytes that can be read at any offset, wherever they are: a file of this machine, or an object of
// a store (trireme/remote).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// Thread safe: several threads read at one time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The path or URL, for messages.
  virtual std::string name() const = 0;
  virtual uint64_t num_bytes() const = 0;  // at the time it was opened
  // Tells these bytes from others that had the name before, as the ETag of an object does; "":
  // nothing does.
  virtual std::string version() const { return ""; }

  // Fills `out` with the bytes from `offset` on.
  // Throws: Error with the name and the reason; when there are fewer bytes, also with the number
  //         that it had when it was opened
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;
};

// A place from which files are opened by name. Thread safe.
class FilePlace {
 public:
  virtual ~FilePlace() = default;
  // The file of that name; null when there is none.
  // Throws: Error when that cannot be found out, or it cannot be opened
  virtual std::unique_ptr<ByteSource> find(const std::string& name) const = 0;
  // Throws: Error with name and reason, also when there is none
  virtual std::unique_ptr<ByteSource> open(const std::string& name) const = 0;
  // Ends the calls under way, and all later ones, that wait for an answer from elsewhere. They
  // throw CommError, within about a second. Files of this machine are read all the same.
  virtual void cancel() const {}
};

// A place that can tell which files it has.
class FileStore : public FilePlace {
 public:
  // The files whose names begin with `prefix`, in the order of names.
  // Throws: Error when the store does not tell
  virtual std::vector<std::unique_ptr<ByteSource>> list(const std::string& prefix) const = 0;
};

// The files of this machine; names are paths.
const FilePlace& local_files();

// All of it.
// Throws: Error as read(), and when it has more than max_bytes
std::string read_all(const ByteSource& source, uint64_t max_bytes);

// The 64-bit checksum (XXH3) of all of it, as checksum() in file.h; read in pieces.
// Throws: as ByteSource::read()
std::string checksum(const ByteSource& source);

// The same bytes in memory, read now.
// Throws: as ByteSource::read()
std::unique_ptr<ByteSource> kept_in_memory(const ByteSource& source);

// Whether a name is a URL, "scheme://...".
bool is_url(const std::string& name);

}  // namespace trireme
