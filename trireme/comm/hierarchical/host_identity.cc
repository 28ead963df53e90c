#include "trireme/comm/hierarchical/host_identity.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/objects.h"

namespace trireme::comm {
namespace {

std::string boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::string id;
  std::ifstream file(kPath);
  TRIREME_CHECK(std::getline(file, id) && !id.empty(), kPath,
                " cannot be read; expected the kernel's boot id, by which hosts are told apart");
  return id;
}

std::string space_of(const char* path) {
  char text[64] = "";
  TRIREME_CHECK(readlink(path, text, sizeof(text) - 1) > 0, path, " cannot be read (",
                std::strerror(errno), ")");
  return text;
}

std::string key_of(const std::string& key, int rank) { return concat(key, "/", rank); }

// Limit on the wait for the last reader, which may have been killed.
constexpr std::chrono::milliseconds kLastReader{5000};

}  // namespace

std::string host_identity() {
  struct stat shm {};
  TRIREME_CHECK(stat("/dev/shm", &shm) == 0, "/dev/shm cannot be read (", std::strerror(errno),
                "); expected a tmpfs that the ranks of this host share");
  // Containers share a kernel. Ranks of one host need one /dev/shm, and process numbers that mean
  // the same to all.
  return concat(boot_id(), " shm:", shm.st_dev, " ", space_of("/proc/self/ns/pid"));
}

std::string network_identity() { return concat(boot_id(), " ", space_of("/proc/self/ns/net")); }

HostMap::HostMap(const std::vector<std::string>& identities) {
  std::vector<std::string> known;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto found = std::ranges::find(known, identities[rank]);
    const auto host = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(identities[rank]);
      ranks_.emplace_back();
    }
    host_of_.push_back(static_cast<int>(host));
    local_rank_of_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(static_cast<int>(rank));
  }
}

bool HostMap::is_contiguous() const { return std::ranges::is_sorted(host_of_); }

CommError error_of_absence(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
                           int rank, int size, std::chrono::milliseconds timeout,
                           const std::exception& error) {
  std::string missing;
  try {
    for (int peer = 0; peer < size; ++peer) {
      if (!store->check({key_of(key, peer)})) missing += concat(" ", peer);
    }
  } catch (const std::exception&) {  // the store is gone; `error` says so
    return CommError(concat("rank ", rank, " of ", size, " lost the store: ", words_of(error)));
  }
  if (missing.empty()) {
    return CommError(
        concat("rank ", rank, " of ", size, " got no answer at the store: ", words_of(error)));
  }
  return CommError(concat("rank ", rank, " of ", size, ": these ranks did not come within ",
                          static_cast<double>(timeout.count()) / 1000, " s:", missing));
}

std::vector<std::string> all_gather_over_store(const c10::intrusive_ptr<c10d::Store>& store,
                                               const std::string& key, const std::string& mine,
                                               int rank, int size,
                                               std::chrono::milliseconds timeout) {
  std::vector<std::string> all;
  try {
    store->set(key_of(key, rank), mine);
    std::vector<std::string> keys;
    for (int peer = 0; peer < size; ++peer) keys.push_back(key_of(key, peer));
    store->wait(keys, timeout);
    for (const std::string& each : keys) all.push_back(store->get_to_str(each));
  } catch (const std::exception& error) {
    throw error_of_absence(store, key, rank, size, timeout, error);
  }
  // A count and one more key, because a store has no barrier.
  const std::string last = key + "/read";
  try {
    // Rank 0 may serve the store, so it must not leave before all have read.
    if (store->add(key + "/readers", 1) == size) store->set(last, std::string("1"));
    if (rank == 0) store->wait({last}, std::min(timeout, kLastReader));
  } catch (const std::exception&) {  // the answers are already here
  }
  return all;
}

namespace {

bool has_equal_hosts(const HostMap& hosts) {
  const size_t size = hosts.ranks_of(0).size();
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    if (hosts.ranks_of(host).size() != size) return false;
  }
  // Only then the two groups are the axes of a grid.
  return hosts.num_hosts() > 1 && size > 1 && hosts.is_contiguous();
}

}  // namespace

HostGroups split_by_host(Communicator& group, const std::string& host) {
  const HostMap hosts(all_gather_strings(group, host));
  if (!has_equal_hosts(hosts)) return {};
  const int rank = group.rank();
  return {.within = group.split(hosts.host_of(rank), rank, concat(group.name(), ".host")),
          .between = group.split(hosts.local_rank_of(rank), rank, concat(group.name(), ".hosts"))};
}

}  // namespace trireme::comm
