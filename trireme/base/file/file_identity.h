// Which file or folder lies at a path: what tells one that was moved, removed or replaced from one
// that is still there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme {

// No other file or folder has the same as long as somebody has this one open.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Follows links, and costs one stat. Empty when nothing can be found there.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path);

// Of what a descriptor has open; where it is by now, absolute, and empty when it was removed.
std::optional<FileIdentity> identity_of(int descriptor);
std::filesystem::path place_of(int descriptor);

}  // namespace trireme
