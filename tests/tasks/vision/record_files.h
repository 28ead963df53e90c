// Small image files for tests, without a library that encodes images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trireme::harness {

inline void append_big_endian(std::string& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// MNIST's four files, with `training` and `validation` images of size x size. Class c of `classes`
// is a bright column c.
inline void write_idx_set(const std::filesystem::path& folder, uint32_t training,
                          uint32_t validation, uint32_t size, uint32_t classes) {
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, uint32_t count) {
    std::string images, labels;
    append_big_endian(images, 0x803);
    append_big_endian(labels, 0x801);
    for (const uint32_t number : {count, size, size}) append_big_endian(images, number);
    append_big_endian(labels, count);
    for (uint32_t n = 0; n < count; ++n) {
      const uint32_t label = (n * 7 + n / classes) % classes;
      for (uint32_t at = 0; at < size * size; ++at) {
        const uint32_t noise = (at * 2654435761U + n * 40503U) >> 26;
        images += static_cast<char>(at % size == label ? 255 - noise : noise);
      }
      labels += static_cast<char>(label);
    }
    write_bytes(folder / (name + "-images-idx3-ubyte"), images);
    write_bytes(folder / (name + "-labels-idx1-ubyte"), labels);
  };
  write("train", training);
  write("t10k", validation);
}

}  // namespace trireme::harness
