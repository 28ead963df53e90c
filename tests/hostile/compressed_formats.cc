// Lines of text that gzip and zstd have compressed.
#include <string>
#include <string_view>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::hostile {
namespace {

// "a\tb\nc\n", as gzip.compress() and ZSTD_compress2() make it, and 5000 times "x" of zstd.
const std::string kGzip(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xe4\x4c\xe2\x4a\xe6\x02\x00\x09\x74\xc7\x4d\x06"
    "\x00\x00\x00",
    26);
const std::string kZstd(
    "\x28\xb5\x2f\xfd\x24\x06\x31\x00\x00\x61\x09\x62\x0a\x63\x0a\x02\xf5\x77\xba", 19);
const std::string kZstdRun(
    "\x28\xb5\x2f\xfd\x60\x88\x12\x4d\x00\x00\x10\x78\x78\x01\x00\x83\xd3\x03\x2c", 19);

class Compressed : public Format {
 public:
  explicit Compressed(const std::filesystem::path& folder) : path_(folder / "packed") {}
  std::string name() const override { return "compressed"; }

  void write(Random& random) override {
    const std::string parts[] = {kGzip, kZstd, kZstdRun};
    const std::string& part = random.pick(parts);
    std::string file = part;
    while (random.one_in(3)) file += random.one_in(4) ? random.pick(parts) : part;
    if (!random.one_in(8)) damage_bytes(file, random);
    put_file(path_, file);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      dataset::TextLines lines(path_, dataset::TextOrigin::kUser, kMaxBytes);
      size_t count = 0;
      for (std::string_view line; lines.next(line); ++count) {
        require(line.size() <= kMaxBytes, "a longer line than it may be");
        require(line.find('\n') == std::string_view::npos, "a line of two");
      }
      require(lines.number() == static_cast<int64_t>(count), "another number of lines");
      require(lines.num_read() <= lines.num_bytes(), "more bytes than the file has");
    });
  }

 private:
  static constexpr size_t kMaxBytes = 6000;

  std::filesystem::path path_;
};

}  // namespace

void add_compressed_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Compressed>(folder));
}

}  // namespace trireme::hostile
