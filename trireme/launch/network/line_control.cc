#include "trireme/launch/network/line_control.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/network/network_address.h"

namespace trireme::launch {
namespace {

constexpr uint16_t kPort = 254;
constexpr int kPatienceMs = 1000;
constexpr uint64_t kMagic = 0x656d657269727431;

enum class Status : uint64_t { kAsked, kDone, kRefused };

// Both ends are on this machine.
struct Request {
  uint64_t magic = kMagic;
  Status status = Status::kAsked;
  int64_t delay_ns = 0;
  double loss = 0;
};
static_assert(std::is_trivially_copyable_v<Request>);

// RFC 791 and 768: headers of 20 and 8 bytes.
constexpr size_t kProtocol = 9, kSenderAt = 12, kTargetAt = 16, kPorts = 20, kChecksum = 26;
constexpr size_t kPayload = 28;
constexpr std::byte kPlainHeader{0x45};  // version 4, without options
constexpr std::byte kUdp{17};

}  // namespace

std::optional<LineChange> requested_change(std::span<const std::byte> packet) {
  const bool has_form = packet.size() == kPayload + sizeof(Request) && packet[0] == kPlainHeader &&
                        packet[kProtocol] == kUdp;
  if (!has_form) return std::nullopt;
  Request request;
  std::memcpy(&request, packet.data() + kPayload, sizeof(request));
  const bool is_request = request.magic == kMagic && request.status == Status::kAsked &&
                          request.delay_ns >= 0 && request.delay_ns <= kMostChangedDelay.count() &&
                          request.loss >= 0 && request.loss <= 1;
  if (!is_request) return std::nullopt;
  return LineChange{std::chrono::nanoseconds(request.delay_ns), request.loss};
}

std::vector<std::byte> answer_to(std::span<const std::byte> packet, bool is_done) {
  std::vector<std::byte> answer(packet.begin(), packet.end());
  std::byte* const bytes = answer.data();
  std::swap_ranges(bytes + kSenderAt, bytes + kTargetAt, bytes + kTargetAt);
  std::swap_ranges(bytes + kPorts, bytes + kPorts + 2, bytes + kPorts + 2);
  std::memset(bytes + kChecksum, 0, 2);  // none; that of the IP header stays right
  const Status status = is_done ? Status::kDone : Status::kRefused;
  std::memcpy(bytes + kPayload + offsetof(Request, status), &status, sizeof(status));
  return answer;
}

void change_lines(const LineChange& change) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  const std::string name = network_address(kControlNumber - 1);
  ::inet_pton(AF_INET, name.c_str(), &address.sin_addr);
  const Request request{.delay_ns = change.delay.count(), .loss = change.loss};
  const bool is_sent =
      socket.is_open() &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(socket.get(), &request, sizeof(request), 0) == sizeof(request);
  if (!is_sent) throw Error(concat("cannot ask the network for it: ", std::strerror(errno)));
  pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
  Request answer;
  const bool has_answer = ::poll(&readable, 1, kPatienceMs) == 1 &&
                          ::recv(socket.get(), &answer, sizeof(answer), 0) == sizeof(answer) &&
                          answer.magic == kMagic;
  if (!has_answer) throw Error("`trireme network` does not answer");
  if (answer.status == Status::kRefused) throw Error("the host has a delay or a loss already");
}

}  // namespace trireme::launch
