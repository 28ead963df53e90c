// A file that appears under its name when it is complete, in place of the one that was there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "trireme/base/file/file.h"

namespace trireme {

// Not thread safe. It is written to a new file ".<name>.<8 random digits>.tmp" beside its own name,
// never through a link. Any number of processes may write one name at a time: the last commit()
// stays. Without commit() the destructor removes the temporary file. A killed process leaves it;
// the next AtomicFile with this name removes it.
class AtomicFile {
 public:
  // A temporary file at a place of the caller's, in a folder that nobody else writes (WorkFolder).
  // Its first bytes are there already, from a process that was interrupted.
  struct Continued {
    std::filesystem::path place;
    uint64_t num_bytes = 0;
  };

  // Throws: Error with path and reason; when a folder, a device or a pipe has that name
  explicit AtomicFile(const std::filesystem::path& path);
  // Writes on behind those bytes; what follows them there is cut off. Without commit() the file
  // stays at its place.
  // Throws: also when it has fewer bytes
  AtomicFile(const std::filesystem::path& path, const Continued& continued);

  // Throws: Error when the disk is full
  void write(std::string_view bytes) { file_.write(bytes); }
  // Brings what was written to the disk, where a Continued finds it.
  // Throws: Error with path and reason
  void sync() { file_.sync(); }
  // Brings the content to the disk. Only commit() may follow.
  // Throws: Error with path and reason
  void complete();
  // Completes and renames it: the file and its name are on the disk when the call returns.
  // Throws: Error with path and reason
  void commit();

  // Where its content is until commit().
  const std::filesystem::path& temporary() const { return temporary_.path; }

 private:
  // Makes a file that no other process has. Its lock tells those that clean up that it is in use.
  struct Temporary {
    explicit Temporary(const std::filesystem::path& target);
    explicit Temporary(const Continued& continued);
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    ~Temporary();
    std::filesystem::path path{};
    Descriptor lock{};
    bool stays = false;  // without commit()
  };

  std::filesystem::path path_;
  Temporary temporary_;
  OutputFile file_;
  bool is_complete_ = false;
};

}  // namespace trireme
