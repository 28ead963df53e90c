#include "trireme/checkpoint/agreement.h"

#include <exception>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {
namespace {

constexpr char kSucceeded = '+';
constexpr char kFailed = '-';

// libtorch's messages go on with a stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::vector<std::string> gather_or_throw(comm::Communicator& world,
                                         const std::function<std::string()>& produce) {
  std::string mine;
  try {
    mine = kSucceeded + produce();
  } catch (const CommError&) {
    throw;  // the group is dead: nothing can be said to the peers
  } catch (const std::exception& error) {
    mine = kFailed + first_line(error.what());
  }
  std::vector<std::string> results = comm::all_gather_strings(world, mine);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].front() == kSucceeded) continue;
    const std::string reason = results[rank].substr(1);
    throw CheckpointError(world.size() == 1 ? reason : concat("rank ", rank, ": ", reason));
  }
  for (std::string& result : results) result.erase(0, 1);
  return results;
}

void run_or_throw(comm::Communicator& world, const std::function<void()>& work) {
  gather_or_throw(world, [&] {
    work();
    return std::string();
  });
}

}  // namespace trireme::checkpoint
