// Finds out which ranks share a host, and so may share memory, and splits a group by host. Ranks
// exchange what their kernels report. Environment variables and the group's size are never used.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace c10d {
class Store;
}

namespace trireme::comm {

// Equal for two processes exactly when they run on the same kernel (boot id), see the same /dev/shm
// (device number; each container has its own unless it is shared) and share a process id namespace.
// Throws: ConfigError when /proc or /dev/shm cannot be read
std::string host_identity();

// Equal for two processes exactly when they run on the same kernel and share a network namespace:
// the loopback leads from one to the other, as between the containers of a pod.
// Throws: ConfigError when /proc cannot be read
std::string network_identity();

// Hosts are numbered by their lowest rank.
class HostMap {
 public:
  // identities[r]: the identity of rank r.
  explicit HostMap(const std::vector<std::string>& identities);

  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  int host_of(int rank) const { return host_of_[rank]; }
  // The rank's number among those of its host.
  int local_rank_of(int rank) const { return local_rank_of_[rank]; }
  // In ascending order.
  const std::vector<int>& ranks_of(int host) const { return ranks_[host]; }
  // Whether the ranks of each host are consecutive.
  bool is_contiguous() const;

 private:
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
  std::vector<std::vector<int>> ranks_;
};

// Every rank's text, in rank order. Rank 0, which may serve the store, returns after all have read.
// Collective: all `size` ranks
// Throws:     CommError with the ranks that did not come within `timeout`
std::vector<std::string> all_gather_over_store(const c10::intrusive_ptr<c10d::Store>& store,
                                               const std::string& key, const std::string& mine,
                                               int rank, int size,
                                               std::chrono::milliseconds timeout);

// Explains why the wait for "<key>/<rank>" of all ranks ended with `error`: some ranks did not
// come, or the store is gone.
CommError error_of_absence(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
                           int rank, int size, std::chrono::milliseconds timeout,
                           const std::exception& error);

struct HostGroups {
  std::unique_ptr<Communicator> within;   // the ranks of this rank's host
  std::unique_ptr<Communicator> between;  // the ranks with its place, one on each host
  bool is_split() const { return within != nullptr; }
};

// Both groups, in rank order, where several hosts have as many consecutive ranks each, and more
// than one. Otherwise none.
// host:       host_identity()
// Comm:       that of all_gather_strings() and of two splits
// Collective: every rank
HostGroups split_by_host(Communicator& group, const std::string& host);

}  // namespace trireme::comm
