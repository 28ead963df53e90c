// Identifies the file or folder at a path, to find out whether it was moved, removed or replaced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme {

// Unique among files and folders as long as someone keeps this one open.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Follows links. Costs one stat. Empty when nothing is found there.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path);

// The identity of an open descriptor, and its current absolute path; empty when it was removed.
std::optional<FileIdentity> identity_of(int descriptor);
std::filesystem::path place_of(int descriptor);

}  // namespace trireme
