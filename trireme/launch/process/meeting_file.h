// The file where the ranks of one host meet, if their transport needs a store and none is named.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::launch::inline internal {

// Makes nothing: the ranks do, if they need it. The destructor removes the file.
class MeetingFile {
 public:
  // `job`: a name that no other group of ranks has.
  explicit MeetingFile(const std::string& job);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  // As TRIREME_STORE has it.
  std::string store() const { return "file:" + path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace trireme::launch::inline internal
