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
  std::unique_ptr<ByteSource> find(const std::string& name) const override {
    return is_file(name) ? open(name) : nullptr;
  }
  std::unique_ptr<ByteSource> open(const std::string& name) const override {
    return std::make_unique<LocalFile>(name);
  }
};

class KeptBytes : public ByteSource {
 public:
  explicit KeptBytes(const ByteSource& source)
      : name_(source.name()), version_(source.version()), bytes_(source.num_bytes()) {
    for (uint64_t at = 0; at < bytes_.size(); at += kPieceBytes) {
      const uint64_t count = std::min<uint64_t>(kPieceBytes, bytes_.size() - at);
      source.read(at, std::span(bytes_).subspan(at, count));
    }
  }

  std::string name() const override { return name_; }
  uint64_t num_bytes() const override { return bytes_.size(); }
  std::string version() const override { return version_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      throw Error(concat("cannot read ", name_, ": it ends before byte ", offset + out.size(),
                         "; it had ", bytes_.size(), " bytes when it was opened"));
    }
    std::ranges::copy(std::span(bytes_).subspan(offset, out.size()), out.begin());
  }

 private:
  static constexpr uint64_t kPieceBytes = 8 << 20;  // of one request to a store
  std::string name_, version_;
  std::vector<std::byte> bytes_;
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

std::unique_ptr<ByteSource> kept_in_memory(const ByteSource& source) {
  return std::make_unique<KeptBytes>(source);
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
