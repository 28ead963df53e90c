#include "trireme/comm/sized_message.h"

#include <chrono>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

WorkPtr run(Communicator& group, Collective::Kind kind, at::Tensor data, int peer,
            Options options) {
  TRIREME_ASSERT(peer >= 0 && options.tag >= 0 && options.tag <= kMostTag,
                 "a sized message of rank ", peer, " with tag ", options.tag);
  options.tag |= kSizedTag;
  options.background = true;
  return group.run({.kind = kind, .data = std::move(data), .peer = peer, .options = options});
}

}  // namespace

WorkPtr send_sized(Communicator& group, at::Tensor data, int peer, const Options& options) {
  return run(group, Collective::Kind::kSend, std::move(data), peer, options);
}

WorkPtr recv_sized(Communicator& group, at::Tensor data, int peer, const Options& options) {
  return run(group, Collective::Kind::kRecv, std::move(data), peer, options);
}

void await_sized(Communicator& group, int peer, Work& received) {
  if (received.poll()) return received.wait();  // which throws what has failed
  const auto begin = std::chrono::steady_clock::now();
  received.wait();
  group.add_wait(peer, std::chrono::steady_clock::now() - begin);
}

}  // namespace trireme::comm
