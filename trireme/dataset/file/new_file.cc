#include "trireme/dataset/file/new_file.h"

#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

// Renaming would put the file into the place of a device, or fail when all is written.
void check_target(const std::filesystem::path& path) {
  std::error_code unknown;  // opening the file says more
  const auto type = std::filesystem::status(path, unknown).type();
  const bool is_folder = type == std::filesystem::file_type::directory || !path.has_filename();
  const bool is_new = type == std::filesystem::file_type::not_found;
  TRIREME_CHECK(!is_folder, path.string(),
                " is a folder; expected the name of a file: choose another --output");
  TRIREME_CHECK(is_new || unknown || type == std::filesystem::file_type::regular, path.string(),
                " is a device or a pipe; expected a regular file or a new one: choose another "
                "--output");
}

AtomicFile open_for_writing(const std::filesystem::path& path) {
  check_target(path);
  if (path.has_parent_path()) make_folders(path.parent_path());
  return AtomicFile(path);
}

}  // namespace

NewFile::NewFile(const std::filesystem::path& path)
    : file_(as_config_error([&] { return open_for_writing(path); }, "; choose another --output")) {}

}  // namespace trireme::dataset
