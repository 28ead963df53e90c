// The text of a compressed file, in pieces. gzip needs zlib and zstd needs its library; a build may
// lack either. Memory does not depend on the size of the text: of zstd it is the window that the
// file asks for, of at most kMaxZstdWindowBytes.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::dataset {

inline constexpr size_t kMaxZstdWindowBytes = size_t{128} << 20;

// Whether this build reads files that are compressed so: "gzip" or "zstd".
bool reads_compression(std::string_view name);

// Which compressions it reads, for a message: "gzip or zstd". "" without any.
std::string readable_compressions();

class CompressedText {
 public:
  // Fills what it is given with the file's next bytes; returns how many there were, 0 at the end.
  using Source = std::function<size_t(std::span<std::byte>)>;

  // compression: one that this build reads. path: for messages
  CompressedText(std::string_view compression, std::string path, Source source);
  ~CompressedText();
  CompressedText(const CompressedText&) = delete;
  CompressedText& operator=(const CompressedText&) = delete;

  // The next bytes of the text, fewer than `out` has room for only at its end. A file may have
  // several parts, as `cat a.gz b.gz` makes them.
  // Throws: ConfigError when the file is damaged, cut short, or needs a larger window
  size_t read(std::span<char> out);

 private:
  class Unpacker;
  class Gzip;
  class Zstd;

  std::string path_;
  Source source_;
  std::unique_ptr<Unpacker> unpacker_;
  std::array<std::byte, 64 << 10> piece_{};
  std::span<const std::byte> packed_{};  // of piece_, not unpacked yet
  bool is_at_end_ = false;
};

}  // namespace trireme::dataset
