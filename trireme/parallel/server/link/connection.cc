#include "trireme/parallel/server/link/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <ATen/ATen.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"

namespace trireme::parallel {
namespace {

namespace wire = comm::wire;

// Bytes that are read from one peer before others get their turn.
// A peer that sends without end must not keep the thread.
constexpr int64_t kTurnBytes = int64_t{4} << 20;
// Limit on unsent bytes in the kernel: an urgent frame waits for no more than these.
constexpr int kUnsentBytes = 256 << 10;

constexpr size_t kHelloBytes = sizeof(wire::Hello);

}  // namespace

Connection::Connection(Descriptor socket, bool accepted, std::string from, uint32_t number,
                       const HubOptions& options)
    : socket_(std::move(socket)),
      from_(std::move(from)),
      options_(options),
      state_(accepted ? State::kWaitsForHello : State::kWaitsForGreeting),
      heard_(Clock::now()),
      said_(heard_) {
  const int on = 1;
  // Requests are small and answered at once.
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof(kUnsentBytes));
  hello_.magic = kServerMagic;
  hello_.rank = number;
  hello_.size = static_cast<uint32_t>(options.role);
  hello_.job = sha256(options.config);
  // The greeting comes from the side that accepts: its nonce makes each proof new.
  if (accepted) {
    greeting_.magic = kServerMagic;
    fill_with_entropy(greeting_.nonce);
    say(greeting_);
  }
}

template <typename T>
void Connection::say(const T& message) {
  opening_out_.append(reinterpret_cast<const char*>(&message), sizeof(message));
}

int64_t Connection::read_some(void* data, size_t num_bytes) {
  while (true) {
    const ssize_t got = recv(socket_.get(), data, num_bytes, 0);
    if (got > 0) heard_ = Clock::now();
    if (got > 0) return got;
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && errno == EAGAIN ? 0 : -1;
  }
}

// True once `message` is complete.
bool Connection::read_message(void* message, size_t num_bytes,
                              std::optional<std::string>& problem) {
  char buffer[256];
  const int64_t got = read_some(buffer, std::min(sizeof(buffer), num_bytes - opening_in_.size()));
  if (got < 0) problem = "it closed the connection";
  if (got <= 0) return false;
  opening_in_.append(buffer, static_cast<size_t>(got));
  // Told at the first wrong byte, before anything of the rest is waited for.
  const size_t known = std::min(opening_in_.size(), kServerMagic.size());
  const bool has_magic = state_ != State::kWaitsForAnswer;
  if (has_magic &&
      !std::equal(opening_in_.begin(), opening_in_.begin() + known, kServerMagic.begin())) {
    problem = "it is not a peer of parameter servers of this version of Trireme";
    return false;
  }
  if (opening_in_.size() < num_bytes) return false;
  std::memcpy(message, opening_in_.data(), num_bytes);
  opening_in_.clear();
  return true;
}

std::optional<std::string> Connection::take_greeting() {
  std::optional<std::string> problem;
  if (!read_message(&greeting_, sizeof(greeting_), problem)) return problem;
  fill_with_entropy(hello_.nonce);
  hello_.proof = wire::client_proof(options_.secret, greeting_, hello_);
  say(hello_);
  state_ = State::kWaitsForAnswer;
  return std::nullopt;
}

std::optional<std::string> Connection::take_hello(const Arrivals& arrivals) {
  std::optional<std::string> problem;
  wire::Hello hello;
  if (!read_message(&hello, kHelloBytes, problem)) return problem;
  wire::Answer answer;
  // Compared in constant time, and before anything else is looked at.
  const Sha256 expected = wire::client_proof(options_.secret, greeting_, hello);
  if (!is_same_digest(hello.proof, expected)) answer.verdict = wire::Verdict::kWrongToken;
  const bool is_known = answer.verdict == wire::Verdict::kWelcome;
  if (is_known && !is_same_digest(hello.job, hello_.job)) answer.verdict = wire::Verdict::kOtherJob;
  const bool is_role = hello.size >= 1 && hello.size <= static_cast<uint32_t>(Role::kWorker);
  if (is_known && !is_role) answer.verdict = wire::Verdict::kOtherSize;
  if (answer.verdict != wire::Verdict::kWelcome) {
    constexpr const char* kReasons[] = {"", "another secret", "another config", "no known role"};
    refusal_ = kReasons[static_cast<uint32_t>(answer.verdict)];
    // It stays to read the answer; then it closes.
    state_ = State::kEnding;
    say(answer);
    return std::nullopt;
  }
  answer.proof = wire::server_proof(options_.secret, greeting_, hello);
  say(answer);
  state_ = State::kOpen;
  arrivals.on_open(static_cast<Role>(hello.size), hello.rank);
  return std::nullopt;
}

std::optional<std::string> Connection::take_answer(const Arrivals& arrivals) {
  std::optional<std::string> problem;
  wire::Answer answer;
  if (!read_message(&answer, sizeof(answer), problem)) return problem;
  using wire::Verdict;
  if (answer.verdict == Verdict::kWrongToken) {
    return "it has another secret, so it belongs to another run; give each run its own address";
  }
  if (answer.verdict == Verdict::kOtherJob) {
    return "it has another config; start all ranks of the run with the same config";
  }
  if (answer.verdict != Verdict::kWelcome) {
    return concat("it refuses this process (", static_cast<uint32_t>(answer.verdict), ")");
  }
  // The other direction: a process that only listens at the address must not be believed.
  if (!is_same_digest(answer.proof, wire::server_proof(options_.secret, greeting_, hello_))) {
    return "it does not know this run's secret, so it belongs to another run";
  }
  state_ = State::kOpen;
  arrivals.on_open(Role::kServer, 0);
  return std::nullopt;
}

std::optional<std::string> Connection::introduce(const Arrivals& arrivals) {
  if (state_ == State::kWaitsForGreeting) return take_greeting();
  if (state_ == State::kWaitsForHello) return take_hello(arrivals);
  if (state_ == State::kWaitsForAnswer) return take_answer(arrivals);
  return std::nullopt;
}

std::optional<std::string> Connection::receive(const Arrivals& arrivals, HubCounts& counts) {
  if (state_ == State::kOpen) return receive_frames(arrivals, counts);
  if (state_ != State::kEnding) return introduce(arrivals);
  char ignored[256];
  if (read_some(ignored, sizeof(ignored)) >= 0) return std::nullopt;
  return refusal_;
}

std::optional<std::string> Connection::receive_frames(const Arrivals& arrivals, HubCounts& counts) {
  for (int64_t turn = 0; turn < kTurnBytes && state_ == State::kOpen;) {
    int64_t got = 0;
    if (in_bytes_ < kFrameHeaderBytes) {
      auto* const header = reinterpret_cast<char*>(&in_header_);
      got = read_some(header + in_bytes_, kFrameHeaderBytes - in_bytes_);
    } else {
      const size_t at = in_bytes_ - kFrameHeaderBytes;
      auto* const payload = static_cast<char*>(in_payload_.mutable_data_ptr());
      got = read_some(payload + at, in_header_.payload_bytes - at);
    }
    if (got < 0) return "it closed the connection";
    if (got == 0) return std::nullopt;
    turn += got;
    in_bytes_ += static_cast<size_t>(got);
    if (in_bytes_ < kFrameHeaderBytes) continue;
    if (in_bytes_ == kFrameHeaderBytes) {
      if (!is_valid(in_header_)) return "it sent a malformed frame";
      if (in_header_.payload_bytes > 0) {
        in_payload_ = at::empty({static_cast<int64_t>(in_header_.payload_bytes)}, at::kByte);
      }
    }
    if (in_bytes_ < kFrameHeaderBytes + in_header_.payload_bytes) continue;
    // Counts say what a run moves; beats are not a part of that.
    if (in_header_.kind != FrameKind::kBeat)
      counts.received_bytes += static_cast<int64_t>(in_bytes_);
    in_bytes_ = 0;
    Frame frame{in_header_, std::exchange(in_payload_, at::Tensor())};
    if (frame.header.kind != FrameKind::kBeat) arrivals.on_frame(std::move(frame));
  }
  return std::nullopt;
}

void Connection::queue(Frame frame, int64_t priority) {
  queue_.emplace(std::pair(priority, num_queued_++), std::move(frame));
}

bool Connection::flush(HubCounts& counts) {
  while (wants_to_send()) {
    msghdr message{};
    iovec parts[2];
    message.msg_iov = parts;
    message.msg_iovlen = 1;
    if (!opening_out_.empty()) {
      parts[0] = {opening_out_.data(), opening_out_.size()};
    } else {
      if (state_ != State::kOpen) return true;
      if (!out_) {
        out_ = std::move(queue_.extract(queue_.begin()).mapped());
        out_bytes_ = 0;
      }
      auto* const header = reinterpret_cast<char*>(&out_->header);
      const size_t in_header = std::min(out_bytes_, kFrameHeaderBytes);
      const size_t in_payload = out_bytes_ - in_header;
      parts[0] = {header + in_header, kFrameHeaderBytes - in_header};
      if (out_->header.payload_bytes > 0) {
        // sendmsg takes no const, and does not write.
        auto* const payload = static_cast<char*>(const_cast<void*>(out_->payload.const_data_ptr()));
        parts[1] = {payload + in_payload, out_->header.payload_bytes - in_payload};
        message.msg_iovlen = 2;
      }
    }
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    said_ = Clock::now();
    if (!opening_out_.empty()) {
      opening_out_.erase(0, static_cast<size_t>(sent));
      continue;
    }
    out_bytes_ += static_cast<size_t>(sent);
    if (out_bytes_ < kFrameHeaderBytes + out_->header.payload_bytes) continue;
    if (out_->header.kind != FrameKind::kBeat)
      counts.sent_bytes += static_cast<int64_t>(out_bytes_);
    out_.reset();
  }
  return true;
}

}  // namespace trireme::parallel
