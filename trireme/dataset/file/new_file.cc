#include "trireme/dataset/file/new_file.h"

#include <system_error>

#include "trireme/dataset/as_config_error.h"

namespace trireme::dataset::inline internal {
namespace {

OutputFile open_for_writing(const std::filesystem::path& path) {
  std::error_code ignored;  // opening the file says more
  std::filesystem::create_directories(path.parent_path(), ignored);
  return OutputFile(path);
}

}  // namespace

NewFile::NewFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(path.string() + ".tmp"),
      file_(as_config_error([&] { return open_for_writing(temporary_); },
                            "; choose another --output")) {}

NewFile::~NewFile() {
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void NewFile::commit() {
  file_.sync();
  file_.close();
  std::filesystem::rename(temporary_, path_);
  const std::filesystem::path folder = path_.parent_path();
  sync_folder(folder.empty() ? std::filesystem::path(".") : folder);
}

}  // namespace trireme::dataset::inline internal
