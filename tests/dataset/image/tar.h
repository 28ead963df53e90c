// Tar archives in memory, header by header.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace trireme::dataset {

struct TarHeader {
  char type = '0';
  std::string prefix{};
  bool gnu = false;
  std::string size{};  // 12 bytes in place of the octal size
};

inline std::string padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512, '\0');
  return text;
}

// Fills in the checksum of the header at the beginning of `archive`.
inline void sum_header(std::string& archive, size_t at = 0) {
  archive.replace(at + 148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<uint8_t>(archive[at + i]);
  char text[8];
  std::snprintf(text, sizeof(text), "%06o", sum & 0777777U);
  archive.replace(at + 148, 7, text, 7);
}

// An entry: its header and its content, padded.
inline std::string tar_entry(const std::string& name, std::string_view content,
                             const TarHeader& form = {}) {
  std::string header(512, '\0');
  header.replace(0, std::min<size_t>(name.size(), 100), name, 0, 100);
  char size[13];
  std::snprintf(size, sizeof(size), "%011o", static_cast<unsigned>(content.size()));
  header.replace(124, 12, form.size.empty() ? std::string(size, 12) : form.size);
  header[156] = form.type;
  header.replace(257, 8,
                 form.gnu ? std::string("ustar  \0", 8)
                          : std::string("ustar\0"
                                        "00",
                                        8));
  header.replace(345, form.prefix.size(), form.prefix);
  sum_header(header);
  return header + padded(std::string(content));
}

inline std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace trireme::dataset
