#include "trireme/comm/rendezvous/job_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/comm/store/store_client.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Whether the file is empty or a complete store of libtorch's: keys and values in turn, each a
// 32-bit length and its bytes, and a known first key. libtorch would wait for any other file, and
// write to it.
bool is_store(int fd, int64_t num_bytes) {
  constexpr std::string_view kFirstKey = "refcount/";
  char first[kFirstKey.size()];
  int64_t at = 0;
  int64_t num_fields = 0;
  while (at < num_bytes) {
    uint32_t length = 0;
    if (pread(fd, &length, sizeof(length), at) != sizeof(length)) return false;
    at += static_cast<int64_t>(sizeof(length));
    const bool is_first = num_fields++ == 0;
    if (is_first && (length != sizeof(first) || pread(fd, first, sizeof(first), at) != length ||
                     std::string_view(first, sizeof(first)) != kFirstKey)) {
      return false;
    }
    at += length;
  }
  return at == num_bytes && num_fields % 2 == 0;
}

// Refuses every file that libtorch would wait for, follow or spoil, before libtorch opens it.
void check_store_file(const std::string& path) {
  const Descriptor file(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600));
  const int code = errno;
  TRIREME_CHECK(file.is_open(), "TRIREME_STORE is \"file:", path,
                "\", which cannot be made or opened (",
                code == ELOOP ? "it is a link" : std::strerror(code),
                "); expected a new file in a folder that all ranks can write to");
  struct stat status {};
  const bool is_file = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  TRIREME_CHECK(is_file, "TRIREME_STORE is \"file:", path,
                "\", which is not a regular file; expected a new file that all ranks see");
  TRIREME_CHECK(status.st_uid == geteuid(), "TRIREME_STORE is \"file:", path,
                "\", which belongs to user ", status.st_uid, "; expected this user's, ", geteuid());
  // Ranks that are already here write under this lock. The size may have grown since.
  flock(file.get(), LOCK_SH);
  fstat(file.get(), &status);
  TRIREME_CHECK(is_store(file.get(), status.st_size), "TRIREME_STORE is \"file:", path,
                "\", which holds something other than a store; name a new file on all ranks, or "
                "remove this one when an earlier job left it");
}

StorePtr open_file_store(const WorldInfo& info, std::chrono::milliseconds timeout) {
  const std::string path = info.store.substr(5);
  check_store_file(path);
  try {
    auto store = c10::make_intrusive<c10d::FileStore>(path, info.size);
    store->setTimeout(timeout);
    return store;
  } catch (const std::exception& error) {
    throw ConfigError(concat("TRIREME_STORE is \"file:", path, "\", which is not a store (",
                             words_of(error), "); remove it, or name a new file on all ranks"));
  }
}

// libtorch's client logs a page for each failed attempt, so it is called only when the agent
// answers.
StorePtr join_agents_store(const WorldInfo& info, const TcpAddress& address,
                           std::chrono::milliseconds timeout) {
  const std::vector<Endpoint> endpoints = resolve(address);
  // A deadline for all attempts: the agent may come later than its ranks.
  const Clock::time_point deadline = Clock::now() + timeout;
  std::string problem = "nobody answered";
  while (!connect_to(endpoints, deadline, problem).is_open()) {
    if (Clock::now() >= deadline) {
      throw CommError(concat("rank ", info.rank, " of ", info.size, ": no store at ", address.host,
                             ":", address.port, " within ",
                             static_cast<double>(timeout.count()) / 1000, " s: ", problem,
                             "; torchrun's agent serves it"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address.host, options);
  } catch (const std::exception& error) {
    throw CommError(concat("rank ", info.rank, " of ", info.size, ": no store of torchrun's at ",
                           address.host, ":", address.port, ": ", words_of(error)));
  }
}

JobStore join_own_store(const WorldInfo& info, const TcpAddress& address,
                        const JobStoreOptions& how) {
  // Rank 0 connects to its own store at the address it listens on, the others at the store's
  // address.
  const bool is_server = info.rank == 0;
  const bool has_own = is_server && !info.listen.empty();
  const TcpAddress here{has_own ? info.listen : address.host, address.port};
  const std::vector<Endpoint> endpoints = resolve(here);
  const std::string token = job_token();
  TRIREME_CHECK(!token.empty() || std::ranges::all_of(endpoints, &Endpoint::is_loopback),
                "other hosts can reach the store at ", here.host, ":", here.port,
                ", and this job has no token to keep strangers out; ", kTokenAdvice,
                " (or MASTER_ADDR=127.0.0.1 when all ranks run on this host)");
  JobStore joined;
  joined.host = address.host;
  if (is_server) {
    StoreServerOptions options{
        .token = token, .job = info.job, .size = info.size, .on_refused = how.on_refused};
    // All ranks may connect at once.
    options.max_strangers += static_cast<size_t>(info.size);
    joined.server = std::make_shared<StoreServer>(listen_on(endpoints, here), std::move(options));
  }
  joined.store =
      c10::make_intrusive<StoreClient>(StoreClientOptions{.address = here,
                                                          .token = token,
                                                          .job = info.job,
                                                          .rank = info.rank,
                                                          .size = info.size,
                                                          .timeout = how.timeout,
                                                          .cancellation = how.cancellation},
                                       joined.server);
  return joined;
}

}  // namespace

JobStore join_job_store(const WorldInfo& info, const JobStoreOptions& options) {
  const bool is_file = info.store.starts_with("file:");
  TRIREME_CHECK(is_file || info.store.starts_with("tcp://"), "the ranks have no store to meet over",
                info.store.empty() ? "" : " (\"" + info.store + "\")",
                "; set MASTER_ADDR and MASTER_PORT, or TRIREME_STORE=file:PATH");
  JobStore joined;
  if (is_file) {
    joined.store = open_file_store(info, options.timeout);
  } else {
    const TcpAddress address = parse_tcp_address(info.store);
    // torchrun's agent serves libtorch's store. Only our own asks for a token.
    if (info.launcher_serves_store) {
      joined = {join_agents_store(info, address, options.timeout), nullptr, address.host};
    } else {
      joined = join_own_store(info, address, options);
    }
  }
  // Several jobs, and restarts of one job, may share an agent's store.
  const std::string prefix = "trireme/" + info.job;
  if (options.cancellation) {
    joined.store =
        c10::make_intrusive<CancellableStore>(prefix, joined.store, options.cancellation);
  } else {
    joined.store = c10::make_intrusive<c10d::PrefixStore>(prefix, joined.store);
  }
  return joined;
}

namespace {

using Clock = std::chrono::steady_clock;

// A cancelled job should end at once for people, and a look costs the store a request.
constexpr std::chrono::milliseconds kWaitSlice{100};
constexpr const char* kMeeting = "meeting the other ranks";

}  // namespace

CancellableStore::CancellableStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
                                   std::shared_ptr<Cancellation> cancellation)
    : c10d::PrefixStore(std::move(prefix), std::move(store)),
      cancellation_(std::move(cancellation)) {}

c10::intrusive_ptr<c10d::Store> CancellableStore::clone() {
  return c10::make_intrusive<CancellableStore>(prefix_, store_->clone(), cancellation_);
}

void CancellableStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  cancellation_->check(kMeeting);
  PrefixStore::set(key, value);
}

std::vector<uint8_t> CancellableStore::get(const std::string& key) {
  // The store's own get() would wait without a look at the cancellation.
  wait({key});
  return PrefixStore::get(key);
}

bool CancellableStore::check(const std::vector<std::string>& keys) {
  cancellation_->check(kMeeting);
  return PrefixStore::check(keys);
}

void CancellableStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void CancellableStore::wait(const std::vector<std::string>& keys,
                            const std::chrono::milliseconds& timeout) {
  const bool is_endless = timeout.count() <= 0;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    cancellation_->check(kMeeting);
    const Clock::time_point begin = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - begin);
    const bool is_last = !is_endless && left <= kWaitSlice;
    const std::chrono::milliseconds slice =
        is_last ? std::max(left, std::chrono::milliseconds(1)) : kWaitSlice;
    try {
      return PrefixStore::wait(keys, slice);
    } catch (const std::exception&) {
      // An error before the slice's end is another one than that of missing keys.
      if (is_last || Clock::now() < begin + slice) throw;
    }
  }
}

std::vector<std::vector<uint8_t>> CancellableStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return PrefixStore::multiGet(keys);
}

}  // namespace trireme::comm
