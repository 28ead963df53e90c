#include "trireme/comm/store_group.h"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/shm_group.h"

namespace trireme::comm {
namespace {

constexpr const char* kSharedMemory = "/dev/shm";

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

std::string text_of(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

// All ranks' host identities must be the same. What differs is said with the hosts' names.
void check_one_host(c10d::Store& store, const std::string& round, int rank, int size,
                    const std::string& group) {
  const auto key = [&](int other) { return concat(round, "host/", other); };
  const std::string own = host_identity();
  set_text(store, key(rank), concat(own, " ", host_name()));
  for (int other = 0; other < size; ++other) {
    const std::string theirs = text_of(store, key(other));
    TRIREME_CHECK(theirs.starts_with(own + " "), "group ", group, ": rank ", rank, " is on host ",
                  host_name(), " and rank ", other, " on host ",
                  theirs.substr(theirs.rfind(' ') + 1), ", which do not share ", kSharedMemory,
                  "; this build joins ranks of one host, the hierarchical fallback across hosts is "
                  "not in it: use the gloo backend for this group, or run its ranks on one host");
  }
}

}  // namespace

std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status = {};
  TRIREME_CHECK(stat(kSharedMemory, &status) == 0, "this host has no ", kSharedMemory,
                ", through which ranks share memory; mount a tmpfs there");
  return concat(boot, ":", status.st_dev, ":", status.st_ino);
}

std::unique_ptr<Communicator> make_store_group(c10d::Store& store, int rank, int size,
                                               const GroupOptions& options) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  // A job that makes its group anew finds the former's keys, so each round has its own.
  const int64_t arrivals = store.add("trireme/arrivals", 1);
  const std::string round = concat("trireme/", (arrivals - 1) / size, "/");
  check_one_host(store, round, rank, size, options.name);
  if (rank == 0) set_text(store, round + "job", unique_job_name());
  return make_shm_group(text_of(store, round + "job"), rank, size, options);
}

}  // namespace trireme::comm
