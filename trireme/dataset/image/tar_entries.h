// The files in a tar archive: POSIX ustar and pax, and GNU's long names. Reads headers only, so
// that an entry's bytes can be fetched later by their place. Trusts nothing in them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

struct TarEntry {
  std::string name;
  uint64_t header = 0;  // bytes in front of its header
  uint64_t offset = 0;  // and of its content
  uint64_t size = 0;    // of the content, which lies in the file
};

// Calls `visit` for every regular file, in the order of the archive. Folders are left out.
// Throws: ConfigError with the path and the byte: a header whose checksum is wrong, a link, device
//         or sparse file, a compressed archive, one that ends within an entry or without the
//         archive's end, or an entry without a name or with ".." in it. It names the entry, if one
//         has been read
// Source: POSIX.1-2017, pax, "ustar Interchange Format"
void read_tar(const ByteSource& file, const std::function<void(const TarEntry&)>& visit);

}  // namespace trireme::dataset
