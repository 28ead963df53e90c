#include "trireme/dataset/columns/text_column.h"

#include <exception>

#include <dlfcn.h>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

#ifdef TRIREME_ARROW_MODULE
// Beside the program, or where this library was installed.
OpenTextColumn* load_module() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::filesystem::path beside =
      program.parent_path().parent_path() / TRIREME_LIBRARY_FOLDER / TRIREME_ARROW_MODULE;
  const std::filesystem::path installed =
      std::filesystem::path(TRIREME_INSTALLED_LIBRARIES) / TRIREME_ARROW_MODULE;
  const bool is_beside = std::filesystem::exists(beside, failure);
  // Never closed: Arrow has threads.
  void* const module = ::dlopen((is_beside ? beside : installed).c_str(), RTLD_NOW | RTLD_LOCAL);
  TRIREME_CHECK(module != nullptr,
                "cannot load Apache Arrow, which reads such files: ", ::dlerror(),
                "; install pyarrow ", TRIREME_ARROW_VERSION,
                " where it was when Trireme was built, or remove the build folder and build again");
  void* const found = ::dlsym(module, kOpenTextColumn);
  TRIREME_ASSERT(found != nullptr, "the module has no ", kOpenTextColumn);
  return reinterpret_cast<OpenTextColumn*>(found);
}
#endif

}  // namespace

#ifdef TRIREME_ARROW_MODULE

std::unique_ptr<TextColumn> open_text_column(const std::filesystem::path& path, ColumnFormat format,
                                             const std::string& name) {
  static OpenTextColumn* const open = load_module();
  try {
    return std::unique_ptr<TextColumn>(open(path.c_str(), format, name.c_str()));
  } catch (const std::exception& error) {
    throw ConfigError(concat(path.string(), error.what()));
  }
}

#else

std::unique_ptr<TextColumn> open_text_column(const std::filesystem::path& path, ColumnFormat,
                                             const std::string&) {
  throw ConfigError(concat(path.string(),
                           ": this build does not read Parquet and Arrow files; install pyarrow 26 "
                           "or later into the python that has torch, remove the build folder and "
                           "build again, or write the rows as JSON lines"));
}

#endif

}  // namespace trireme::dataset
