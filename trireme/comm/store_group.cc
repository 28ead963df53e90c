#include "trireme/comm/store_group.h"

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/host_identity.h"
#include "trireme/comm/shm_group.h"

namespace trireme::comm {
namespace {

std::string host_name() {
  char name[256] = "unnamed";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Unlike every other job's on this host, now and before.
std::string unique_job_name() {
  std::random_device random;
  char name[64];
  std::snprintf(name, sizeof(name), "c10d-%08x%08x", random(), random());
  return name;
}

// All ranks' host identities must be the same. What differs is said with the hosts' names.
void check_one_host(const c10::intrusive_ptr<c10d::Store>& store, const std::string& round,
                    int rank, int size, const GroupOptions& options) {
  const std::string own = host_identity();
  const std::vector<std::string> hosts = all_gather_over_store(
      store, round + "host", concat(own, " ", host_name()), rank, size, options.timeout);
  for (int other = 0; other < size; ++other) {
    const std::string& theirs = hosts[other];
    TRIREME_CHECK(theirs.starts_with(own + " "), "group ", options.name, ": rank ", rank,
                  " is on host ", host_name(), " and rank ", other, " on host ",
                  theirs.substr(theirs.rfind(' ') + 1),
                  ", which do not share /dev/shm; this build joins ranks of one host, the "
                  "hierarchical fallback across hosts is not in it: use the gloo backend for this "
                  "group, or run its ranks on one host");
  }
}

}  // namespace

std::unique_ptr<Communicator> make_store_group(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, const GroupOptions& options) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  // A job that makes its group anew finds the former's keys, so each round has its own.
  const int64_t arrivals = store->add("trireme/arrivals", 1);
  const std::string round = concat("trireme/", (arrivals - 1) / size, "/");
  check_one_host(store, round, rank, size, options);
  const std::string key = round + "job";
  if (rank == 0) {
    const std::string job = unique_job_name();
    store->set(key, std::vector<uint8_t>(job.begin(), job.end()));
  }
  const std::vector<uint8_t> job = store->get(key);
  return make_shm_group(std::string(job.begin(), job.end()), rank, size, options);
}

}  // namespace trireme::comm
