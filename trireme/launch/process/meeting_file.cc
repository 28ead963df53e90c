#include "trireme/launch/process/meeting_file.h"

#include <system_error>

namespace trireme::launch::inline internal {
namespace {

// TMPDIR may name a folder that no longer exists. Most groups need none.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder;
}

}  // namespace

MeetingFile::MeetingFile(const std::string& job)
    : path_(temporary_folder() / ("trireme-" + job + ".store")) {}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace trireme::launch::inline internal
