#include "trireme/launch/link/message.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

// A reason or an error of one line; a packet has room for several.
constexpr size_t kMaxTextBytes = 4096;
// A byte that is not UTF-8 becomes the three of U+FFFD, and "..." may follow.
constexpr size_t kMaxReadTextBytes = 3 * (kMaxTextBytes + 3);
// Unknown keys of a later version are skipped, and these bound what they may be.
constexpr JsonLimits kLimits{.max_bytes = kMaxPacketBytes, .max_values = 256, .max_depth = 4};
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

template <typename Message>
struct Field {
  const char* key;
  int64_t Message::*number;  // null: a text
  std::string Message::*text = nullptr;
  int64_t minimum = 0;
  int64_t maximum = kAny;
};

// A table per message serves the writer, the reader and the checks, so that no key can be in one of
// them only.
// The name of a message and its fields.
template <typename Message>
struct Form;

template <>
struct Form<Join> {
  static constexpr const char* kName = "join";
  static constexpr std::array<Field<Join>, 8> kFields{{
      {"epoch", &Join::epoch, nullptr, 1},
      {"rank", &Join::rank, nullptr, 0, kMaxLinkRanks - 1},
      {"size", &Join::size, nullptr, 1, kMaxLinkRanks},
      {"local_rank", &Join::local_rank, nullptr, 0, kMaxLinkRanks - 1},
      {"local_size", &Join::local_size, nullptr, 1, kMaxLinkRanks},
      {"job", nullptr, &Join::job},
      {"store", nullptr, &Join::store},
      {"reason", nullptr, &Join::reason},
  }};
};

template <>
struct Form<Leave> {
  static constexpr const char* kName = "leave";
  static constexpr std::array<Field<Leave>, 2> kFields{{
      {"epoch", &Leave::epoch, nullptr, 1},
      {"reason", nullptr, &Leave::reason},
  }};
};

template <>
struct Form<Finish> {
  static constexpr const char* kName = "finish";
  static constexpr std::array<Field<Finish>, 2> kFields{{
      {"epoch", &Finish::epoch, nullptr, 1},
      {"reason", nullptr, &Finish::reason},
  }};
};

template <>
struct Form<Hello> {
  static constexpr const char* kName = "hello";
  static constexpr std::array<Field<Hello>, 2> kFields{{
      {"version", &Hello::version, nullptr, 1},
      {"folder", nullptr, &Hello::folder},
  }};
};

template <>
struct Form<StepDone> {
  static constexpr const char* kName = "step";
  static constexpr std::array<Field<StepDone>, 2> kFields{{
      {"epoch", &StepDone::epoch, nullptr, 1},
      {"step", &StepDone::step},
  }};
};

template <>
struct Form<Left> {
  static constexpr const char* kName = "left";
  static constexpr std::array<Field<Left>, 3> kFields{{
      {"epoch", &Left::epoch, nullptr, 1},
      {"step", &Left::step},
      {"error", nullptr, &Left::error},
  }};
};

template <>
struct Form<Spare> {
  static constexpr const char* kName = "spare";
  static constexpr std::array<Field<Spare>, 1> kFields{{
      {"epoch", &Spare::epoch, nullptr, 1},
  }};
};

template <typename Message>
std::string written(const Message& message) {
  json packet = {{"message", Form<Message>::kName}};
  for (const Field<Message>& field : Form<Message>::kFields) {
    if (field.number != nullptr) {
      packet[field.key] = message.*field.number;
    } else {
      packet[field.key] = shown(message.*field.text, kMaxTextBytes);
    }
  }
  return packet.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

template <typename Message>
Message read(const JsonView& packet) {
  Message message;
  for (const Field<Message>& field : Form<Message>::kFields) {
    const JsonView value = packet.at(field.key);
    if (field.number != nullptr) {
      message.*field.number = value.integer(field.minimum, field.maximum);
    } else {
      message.*field.text = value.word(kMaxReadTextBytes);
    }
  }
  return message;
}

void check(const Join& join, const std::string& source) {
  // Subtractions only, since sums of numbers from a packet may overflow.
  const bool fits = join.rank < join.size && join.local_rank < join.local_size &&
                    join.local_size <= join.size && join.local_rank <= join.rank &&
                    join.local_size - join.local_rank <= join.size - join.rank;
  TRIREME_CHECK(fits, source, ": \"join\" has rank ", join.rank, " of ", join.size,
                " and local rank ", join.local_rank, " of ", join.local_size,
                "; expected a rank below the size and a host's ranks within the job's");
  TRIREME_CHECK(!join.job.empty(), source, ": the job of \"join\" is \"\"; expected a name");
}

template <typename Message>
void check(const Message&, const std::string&) {}

// The alternatives of the variant `Any`, by name.
template <typename Any, size_t... kIndices>
Any parse(std::string_view text, const std::string& source, std::index_sequence<kIndices...>) {
  const json root = parse_json(text, source, kLimits);
  const JsonView packet(root, source);
  const JsonView name = packet.at("message");
  Any message;
  const auto take = [&]<typename Message>(Message*) {
    if (name.text() != Form<Message>::kName) return false;
    // By trying each form: there are a handful.
    const Message taken = read<Message>(packet);
    check(taken, source);
    message = taken;
    return true;
  };
  const bool known =
      (take(static_cast<std::variant_alternative_t<kIndices, Any>*>(nullptr)) || ...);
  if (!known) {
    name.fail(
        in_words({concat('"', Form<std::variant_alternative_t<kIndices, Any>>::kName, '"')...}));
  }
  return message;
}

template <typename Any>
Any parse(std::string_view text, const std::string& source) {
  return parse<Any>(text, source, std::make_index_sequence<std::variant_size_v<Any>>());
}

using Clock = std::chrono::steady_clock;

// The kernel calls a socket writable only when three quarters of its room are free. A packet may
// fit before.
constexpr std::chrono::milliseconds kRetryDelay{10};

// Waits until the socket is ready for `events`, the deadline has passed or a signal has come.
void wait_for_socket(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd entry{fd, events, 0};
  poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
}

}  // namespace

std::string to_packet(const ToWorker& message) {
  return std::visit([](const auto& each) { return written(each); }, message);
}

std::string to_packet(const ToAgent& message) {
  return std::visit([](const auto& each) { return written(each); }, message);
}

ToWorker parse_to_worker(std::string_view packet, const std::string& source) {
  return parse<ToWorker>(packet, source);
}

ToAgent parse_to_agent(std::string_view packet, const std::string& source) {
  return parse<ToAgent>(packet, source);
}

PacketSocket::PacketSocket(Descriptor socket) : socket_(std::move(socket)) {}

std::pair<PacketSocket, PacketSocket> PacketSocket::make_pair() {
  // Packets and not a stream: a message is whole or absent, and a slow reader never sees half of
  // one.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(concat("cannot make the link to a worker: socketpair: ", std::strerror(errno)));
  }
  return {PacketSocket(Descriptor(ends[0])), PacketSocket(Descriptor(ends[1]))};
}

PacketSocket PacketSocket::adopt(int fd, const std::string& variable) {
  int type = 0;
  socklen_t length = sizeof(type);
  const int result = fd < 0 ? -1 : getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
  TRIREME_CHECK(result == 0 && type == SOCK_SEQPACKET, variable, " is ", fd,
                ", which is not an open socket of the type SOCK_SEQPACKET; expected the descriptor "
                "that `trireme run` hands to a worker; unset the variable to train without it");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return PacketSocket(Descriptor(fd));
}

bool PacketSocket::send(std::string_view packet, std::chrono::milliseconds patience) const {
  const Clock::time_point deadline = Clock::now() + patience;
  while (true) {
    // Never blocks by itself; the waiting below has a deadline.
    const ssize_t sent =
        ::send(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return true;
    // ENOBUFS is a full system and passes.
    const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    if (!is_full && errno != EINTR) return false;
    if (is_full && Clock::now() >= deadline) return false;
    if (is_full)
      wait_for_socket(socket_.get(), POLLOUT, std::min(deadline, Clock::now() + kRetryDelay));
  }
}

Received PacketSocket::receive(std::string& packet, std::chrono::milliseconds patience) const {
  const Clock::time_point deadline = Clock::now() + patience;
  packet.resize(kMaxPacketBytes);
  while (true) {
    // With MSG_TRUNC the result is the packet's own size.
    const ssize_t size =
        recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
    // A packet that was cut must not be parsed as a shorter one.
    if (size > static_cast<ssize_t>(kMaxPacketBytes)) return Received::kTooLong;
    if (size > 0) {
      packet.resize(static_cast<size_t>(size));
      return Received::kPacket;
    }
    // No message is empty, so an empty packet is the end, or as good as that.
    if (size == 0) return Received::kClosed;
    const bool is_empty = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!is_empty && errno != EINTR) return Received::kClosed;
    if (is_empty && Clock::now() >= deadline) return Received::kNothing;
    // No short waits here: a packet wakes poll().
    if (is_empty) wait_for_socket(socket_.get(), POLLIN, deadline);
  }
}

void PacketSocket::shut_down() const { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace trireme::launch
