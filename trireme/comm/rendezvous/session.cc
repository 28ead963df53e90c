#include "trireme/comm/rendezvous/session.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/base/random/entropy.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/message/message_exchange.h"

namespace trireme::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

const std::string kArrived = "arrived";  // arrived/RANK: the last number that the rank has drawn

std::string arrived(int rank) { return concat(kArrived, "/", rank); }
std::string welcome(const std::string& number) { return "welcome/" + number; }
std::string joined(const std::string& session, int rank) {
  return concat("joined/", session, "/", rank);
}

// The value of a key; "" when it does not exist.
std::string look_up(const StorePtr& store, const std::string& key) {
  return store->check({key}) ? store->get_to_str(key) : "";
}

// On rank 0: welcomes every number it sees until each rank has answered one. Numbers left by an
// earlier job are welcomed too, and nobody answers.
void gather(const StorePtr& store, const std::string& session, int size,
            std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  std::vector<std::string> welcomed(size);
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) missing.push_back(rank);
  std::chrono::milliseconds delay{1};
  while (true) {
    std::erase_if(missing, [&](int rank) {
      if (store->check({joined(session, rank)})) return true;
      const std::string number = look_up(store, arrived(rank));
      if (number.empty() || number == welcomed[rank]) return false;
      store->set(welcome(number), session);
      welcomed[rank] = number;
      return false;
    });
    if (missing.empty()) break;
    if (Clock::now() >= deadline) {
      std::string list;
      for (const int rank : missing) list += concat(" ", rank);
      throw CommError(concat("rank 0 of ", size, ": these ranks did not come within ",
                             static_cast<double>(timeout.count()) / 1000, " s:", list));
    }
    std::this_thread::sleep_for(delay);
    delay = std::min(2 * delay, std::chrono::milliseconds(20));
  }
  for (int rank = 1; rank < size; ++rank) {
    TRIREME_CHECK(store->get_to_str(joined(session, rank)) == look_up(store, arrived(rank)),
                  "two processes are rank ", rank, " of ", size,
                  " at one store; give each job a MASTER_PORT or TRIREME_STORE of its own");
  }
}

}  // namespace

std::string agree_on_session(const StorePtr& store, int rank, int size,
                             std::chrono::milliseconds timeout) {
  const std::string number = unique_name();
  try {
    store->set(arrived(rank), number);
    if (rank == 0) {
      const std::string session = unique_name();
      gather(store, session, size, timeout);
      return session;
    }
    store->wait({welcome(number)}, timeout);
    const std::string session = store->get_to_str(welcome(number));
    store->set(joined(session, rank), number);
    return session;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw error_of_absence(store, kArrived, rank, size, timeout, error);
  }
}

}  // namespace trireme::comm
