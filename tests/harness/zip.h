// Zip archives as tests forge them, to damage any part of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace trireme::harness {

struct ZipEntry {
  std::string name;
  std::string data;
};

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}
template <typename T>
void add(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Where parts of a zip archive begin.
struct Zip {
  std::string bytes{};
  std::vector<size_t> locals{};   // local headers
  std::vector<size_t> entries{};  // entries of the directory
  size_t end = 0;
};

// A zip archive of entries without compression. with64: sizes and places are in zip64's records.
inline Zip make_zip(const std::vector<ZipEntry>& files, bool with64 = false) {
  Zip zip;
  for (const ZipEntry& file : files) {
    zip.locals.push_back(zip.bytes.size());
    zip.bytes += std::string("PK\x03\x04", 4) + std::string(22, '\0');
    add<uint16_t>(zip.bytes, static_cast<uint16_t>(file.name.size()));
    add<uint16_t>(zip.bytes, 0);
    zip.bytes += file.name + file.data;
  }
  const size_t directory = zip.bytes.size();
  for (size_t i = 0; i < files.size(); ++i) {
    const auto size = static_cast<uint32_t>(files[i].data.size());
    const auto local = static_cast<uint32_t>(zip.locals[i]);
    zip.entries.push_back(zip.bytes.size());
    zip.bytes += std::string("PK\x01\x02", 4) + std::string(16, '\0');
    for (int repeat = 0; repeat < 2; ++repeat) add<uint32_t>(zip.bytes, with64 ? ~0U : size);
    add<uint16_t>(zip.bytes, static_cast<uint16_t>(files[i].name.size()));
    add<uint16_t>(zip.bytes, with64 ? 28 : 0);
    zip.bytes += std::string(10, '\0');
    add<uint32_t>(zip.bytes, with64 ? ~0U : local);
    zip.bytes += files[i].name;
    if (!with64) continue;
    add<uint16_t>(zip.bytes, 1);
    add<uint16_t>(zip.bytes, 24);
    for (const uint64_t value : {size, size, local}) add<uint64_t>(zip.bytes, value);
  }
  const size_t size = zip.bytes.size() - directory;
  zip.end = zip.bytes.size();
  if (with64) {
    zip.bytes += std::string("PK\x06\x06", 4) + std::string(20, '\0');
    for (const uint64_t value : {files.size(), files.size(), size, directory})
      add<uint64_t>(zip.bytes, value);
    zip.bytes += std::string("PK\x06\x07", 4) + std::string(4, '\0');
    add<uint64_t>(zip.bytes, zip.end);
    add<uint32_t>(zip.bytes, 1);
  }
  zip.bytes += std::string("PK\x05\x06", 4) + std::string(4, '\0');
  for (int repeat = 0; repeat < 2; ++repeat)
    add<uint16_t>(zip.bytes, with64 ? 0xffff : static_cast<uint16_t>(files.size()));
  add<uint32_t>(zip.bytes, with64 ? ~0U : static_cast<uint32_t>(size));
  add<uint32_t>(zip.bytes, with64 ? ~0U : static_cast<uint32_t>(directory));
  add<uint16_t>(zip.bytes, 0);
  return zip;
}

}  // namespace trireme::harness
