#include "trireme/base/file/byte_source.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

class LocalFile : public ByteSource {
 public:
  explicit LocalFile(const std::string& path) : file_(path) {}
  std::string name() const override { return file_.path().string(); }
  uint64_t num_bytes() const override { return file_.num_bytes(); }
  void read(uint64_t offset, std::span<std::byte> out) const override { file_.read(offset, out); }

 private:
  InputFile file_;
};

class LocalFiles : public FilePlace {
 public:
  bool has(const std::string& name) const override { return is_file(name); }
  std::unique_ptr<ByteSource> open(const std::string& name) const override {
    return std::make_unique<LocalFile>(name);
  }
};

}  // namespace

const FilePlace& local_files() {
  static const LocalFiles files;
  return files;
}

std::string read_all(const ByteSource& source, uint64_t max_bytes) {
  const uint64_t size = source.num_bytes();
  if (size > max_bytes) {
    throw Error(concat("cannot read ", source.name(), ": it has ", size,
                       " bytes; expected at most ", max_bytes));
  }
  std::string text(size, '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool is_url(const std::string& name) {
  const size_t end = name.find("://");
  return end != std::string::npos && end > 0 &&
         std::ranges::all_of(std::string_view(name).substr(0, end), [](unsigned char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '-' || c == '.';
         });
}

}  // namespace trireme
