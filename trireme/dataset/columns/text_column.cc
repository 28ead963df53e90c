#include "trireme/dataset/columns/text_column.h"

#include <exception>
#include <filesystem>
#include <mutex>
#include <utility>

#include <dlfcn.h>

#include "trireme/base/error.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

#ifdef TRIREME_ARROW_MODULE
// Beside the program, or where this library was installed.
void* load_module() {
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
  return module;
}

template <typename Function>
Function* function_of_module(const char* name) {
  static void* const module = load_module();
  void* const found = ::dlsym(module, name);
  TRIREME_ASSERT(found != nullptr, "the module has no ", name);
  return reinterpret_cast<Function*>(found);
}

// Keeps the error of a read, of which Arrow passes on a text.
class KeptFailure : public ByteSource {
 public:
  explicit KeptFailure(std::shared_ptr<const ByteSource> file) : file_(std::move(file)) {}

  std::string name() const override { return file_->name(); }
  uint64_t num_bytes() const override { return file_->num_bytes(); }
  std::string version() const override { return file_->version(); }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    try {
      file_->read(offset, out);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      throw;
    }
  }

  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::shared_ptr<const ByteSource> file_;
  mutable std::mutex mutex_;
  mutable std::exception_ptr failure_{};
};

// A column of the module, whose errors of reading are those of the file.
class OpenColumn : public TextColumn {
 public:
  template <typename Open>
  OpenColumn(std::shared_ptr<const ByteSource> file, const Open& open)
      : file_(std::make_shared<const KeptFailure>(std::move(file))) {
    try {
      column_.reset(open(file_));
    } catch (const std::exception& error) {
      as_config_error([&] { file_->rethrow(); });
      throw ConfigError(concat(file_->name(), error.what()));
    }
  }

  bool next(std::vector<std::optional<std::string_view>>& values) override {
    try {
      return column_->next(values);
    } catch (const std::exception&) {
      as_config_error([&] { file_->rethrow(); });
      throw;
    }
  }
  double share_read() const override { return column_->share_read(); }

 private:
  std::shared_ptr<const KeptFailure> file_;
  std::unique_ptr<TextColumn> column_{};
};
#endif

}  // namespace

#ifdef TRIREME_ARROW_MODULE

std::unique_ptr<TextColumn> open_text_column(std::shared_ptr<const ByteSource> file,
                                             ColumnFormat format, const std::string& name) {
  static auto* const open = function_of_module<OpenTextColumn>(kOpenTextColumn);
  return std::make_unique<OpenColumn>(std::move(file),
                                      [&](const std::shared_ptr<const ByteSource>& opened) {
                                        return open(opened, format, name.c_str());
                                      });
}

std::unique_ptr<TextColumn> open_json_rows(std::shared_ptr<const ByteSource> file,
                                           ColumnFormat format,
                                           std::span<const std::string_view> names) {
  static auto* const open = function_of_module<OpenJsonRows>(kOpenJsonRows);
  return std::make_unique<OpenColumn>(
      std::move(file),
      [&](const std::shared_ptr<const ByteSource>& opened) { return open(opened, format, names); });
}

#else

std::unique_ptr<TextColumn> open_text_column(std::shared_ptr<const ByteSource> file, ColumnFormat,
                                             const std::string&) {
  throw ConfigError(concat(file->name(),
                           ": this build does not read Parquet and Arrow files; install pyarrow 26 "
                           "or later into the python that has torch, remove the build folder and "
                           "build again, or write the rows as JSON lines"));
}

std::unique_ptr<TextColumn> open_json_rows(std::shared_ptr<const ByteSource> file,
                                           ColumnFormat format, std::span<const std::string_view>) {
  return open_text_column(std::move(file), format, "");
}

#endif

}  // namespace trireme::dataset
