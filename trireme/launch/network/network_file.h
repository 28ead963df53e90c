// The file of `trireme network`: hosts, and the lines between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/net/paced_link.h"

namespace trireme::launch {

inline constexpr size_t kMostNetworkHosts = 64;

struct NetworkFile {
  struct Link {
    size_t first = 0, second = 0;  // numbers of hosts; first < second
    comm::LinkShape shape{};       // of each direction
    bool operator==(const Link&) const = default;
  };

  std::vector<std::string> hosts{};
  uint64_t seed = 1;
  int mtu = 1500;             // bytes of the largest packet
  std::vector<Link> links{};  // at most one of each pair; a pair without one is not connected
  bool operator==(const NetworkFile&) const = default;
};

// Throws: ConfigError, one line with source, line and key: what is there and what may be there
NetworkFile parse_network(std::string_view toml, const std::string& source);
// Throws: ConfigError; also when there is no such file
NetworkFile read_network(const std::filesystem::path& path);

// A file that shows every key.
std::string example_network();

}  // namespace trireme::launch
