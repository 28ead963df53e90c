#include "trireme/comm/rounds/round_client.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/comm/rounds/round_service.h"
#include "trireme/comm/store/store_client.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::RoundBytes;
using wire::RoundReply;
using wire::RoundRequest;

// How long one attempt to reach the service may take, and one answer of it.
constexpr std::chrono::seconds kAttempt{2};
constexpr std::chrono::seconds kAnswer{60};
constexpr std::chrono::seconds kShort{1};
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};

FrameWriter round_writer(RoundRequest request) {
  return FrameWriter(static_cast<uint8_t>(request));
}

[[noreturn]] void fail_on_reply() {
  throw CommError("the service of outer.meeting answers what this version does not know");
}

void check_stop(const RoundClientOptions& options, const char* what) {
  if (options.is_stopped && options.is_stopped()) throw CommError(concat("stopped while ", what));
}

}  // namespace

// Between questions about what others do: short at first.
class RoundClient::Pause {
 public:
  explicit Pause(std::chrono::milliseconds timeout) : deadline_(Clock::now() + timeout) {}
  // False: the time is over.
  bool take() {
    if (Clock::now() >= deadline_) return false;
    std::this_thread::sleep_for(std::exchange(next_, std::min(2 * next_, kLongestPause)));
    return true;
  }

 private:
  const Clock::time_point deadline_;
  std::chrono::milliseconds next_ = kFirstPause;
};

RoundConnection::RoundConnection(const RoundClientOptions& options)
    : options_(options),
      endpoints_(resolve(parse_tcp_address("tcp://" + options.address))),
      token_(job_token()) {
  TRIREME_CHECK(!token_.empty() || std::ranges::all_of(endpoints_, &Endpoint::is_loopback),
                "outer.meeting is ", options_.address,
                ", which is not this host, and there is no token; ", kTokenAdvice);
}

std::optional<Bytes> RoundConnection::try_to_ask(const Bytes& frame) {
  if (!socket_.is_open()) {
    try {
      socket_ =
          join_store({.address = parse_tcp_address("tcp://" + options_.address),
                      .token = token_,
                      .job = kRoundsJob,
                      .size = 0,
                      .member = "this learner",
                      .server = "`trireme meet`",
                      .port_advice = "set outer.meeting to where `trireme meet` listens"},
                     endpoints_, std::min<std::chrono::milliseconds>(kAttempt, options_.timeout));
    } catch (const CommError&) {
      return std::nullopt;
    }
  }
  const Clock::time_point deadline =
      Clock::now() + std::min<std::chrono::milliseconds>(kAnswer, options_.timeout);
  uint32_t length = 0;
  Bytes reply;
  bool arrives = send_all(socket_.get(), frame.data(), frame.size(), deadline) &&
                 recv_all(socket_.get(), &length, sizeof(length), deadline);
  arrives = arrives && length > 0 && length <= wire::kMaxFrameBytes;
  if (arrives) reply.resize(length);
  arrives = arrives && recv_all(socket_.get(), reply.data(), length, deadline);
  if (arrives) return reply;
  socket_ = Descriptor();
  return std::nullopt;
}

Bytes RoundConnection::ask(FrameWriter& request) {
  const Bytes& frame = request.finish();
  const Clock::time_point begin = Clock::now();
  while (true) {
    if (auto reply = try_to_ask(frame)) return std::move(*reply);
    if (Clock::now() - begin > options_.timeout) {
      throw CommError(concat("no answer of the learners' service at ", options_.address, " within ",
                             in_seconds(options_.timeout),
                             " s; start `trireme meet` there, and this learner again"));
    }
    check_stop(options_, "the learners' service does not answer");
    std::this_thread::sleep_for(kLongestPause);
  }
}

RoundClient::RoundClient(const RoundClientOptions& options, RoundMember member)
    : options_(options),
      connection_(options),
      short_({.address = options.address, .timeout = kShort}),
      member_(std::move(member)) {
  TRIREME_CHECK(member_.run.size() <= wire::kMaxRoundText, "outer.meeting with ",
                member_.run.size(),
                " bytes of settings that all learners have in common; expected at most ",
                wire::kMaxRoundText);
  enroll_now();
  sigset_t all, before;  // signals are for the rank's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RoundClient::~RoundClient() { end_thread(); }

void RoundClient::end_thread() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RoundClient::beat() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, lease_ / 4, [this] { return is_ending_; })) {
    FrameWriter writer = round_writer(RoundRequest::kEnroll);
    wire::write_member(writer, member_);
    lock.unlock();
    std::string refusal;
    try {
      const Bytes reply = short_.ask(writer);
      FrameReader reader(reply);
      if (static_cast<RoundReply>(reader.what()) == RoundReply::kRefused) refusal = reader.text();
    } catch (const CommError&) {
      // The other thread finds out, if it lasts.
    } catch (const Error& error) {
      refusal = error.what();
    }
    lock.lock();
    if (refusal_.empty()) refusal_ = refusal;
  }
}

void RoundClient::check_refusal() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(refusal_.empty(), refusal_);
}

wire::RoundWelcome RoundClient::enroll_now() {
  FrameWriter writer = round_writer(RoundRequest::kEnroll);
  {
    const std::lock_guard lock(mutex_);
    wire::write_member(writer, member_);
  }
  const Bytes reply = connection_.ask(writer);
  FrameReader reader(reply);
  const auto kind = static_cast<RoundReply>(reader.what());
  if (kind == RoundReply::kRefused) throw ConfigError(reader.text());
  const auto welcome = kind == RoundReply::kDone ? wire::read_welcome(reader) : std::nullopt;
  if (!welcome) fail_on_reply();
  const std::lock_guard lock(mutex_);
  lease_ = std::chrono::milliseconds(welcome->lease_ms);
  return *welcome;
}

wire::RoundWelcome RoundClient::enroll(int64_t step, const std::string& hash) {
  check_refusal();
  {
    const std::lock_guard lock(mutex_);
    member_.step = step;
    member_.hash = hash;
  }
  return enroll_now();
}

wire::RoundWelcome RoundClient::await_welcome() {
  Pause pause(options_.timeout);
  do {
    check_refusal();
    const wire::RoundWelcome welcome = enroll_now();
    if (welcome.standing == RoundStanding::kIn) return welcome;
    if (welcome.standing == RoundStanding::kBehind && welcome.state > member_.step) return welcome;
    check_stop(options_, "this learner waits to be one of the others");
  } while (pause.take());
  throw CommError(concat("no learner has given this one the common weights within ",
                         in_seconds(options_.timeout), " s (parallel.timeout_seconds)"));
}

Bytes RoundClient::ask(RoundRequest request, const std::vector<int64_t>& numbers,
                       std::optional<std::span<const uint8_t>> bytes, RoundReply& reply) {
  check_refusal();
  FrameWriter writer = round_writer(request);
  writer.number(member_.place).number(member_.rank).text(member_.process);
  for (const int64_t number : numbers) writer.number(number);
  if (bytes) writer.bytes(*bytes);
  Bytes answer = connection_.ask(writer);
  FrameReader reader(answer);
  reply = static_cast<RoundReply>(reader.what());
  if (reply == RoundReply::kRefused) throw ConfigError(reader.text());
  if (reply == RoundReply::kUnknown) {
    enroll_now();
  } else if (reply != RoundReply::kDone && reply != RoundReply::kGone) {
    fail_on_reply();
  }
  answer.erase(answer.begin());
  return answer;
}

bool RoundClient::send(RoundBytes what, int64_t step, std::span<const uint8_t> bytes) {
  const int64_t size = std::ssize(bytes);
  int64_t there = 0;
  do {
    const auto piece =
        bytes.subspan(static_cast<size_t>(there))
            .first(static_cast<size_t>(std::min(size - there, wire::kRoundPieceBytes)));
    RoundReply reply{};
    const Bytes answer =
        ask(RoundRequest::kPut, {static_cast<int64_t>(what), step, size, there}, piece, reply);
    if (reply == RoundReply::kGone) return false;
    if (reply == RoundReply::kUnknown) {
      there = 0;
      continue;
    }
    FrameReader reader(answer);
    there = reader.number();
    if (!reader.ok() || there < 0 || there > size) fail_on_reply();
    if (there == size) return true;
  } while (true);
}

void RoundClient::hand_down(int64_t step, std::span<const uint8_t> state) {
  Pause pause(options_.timeout);
  do {
    check_refusal();
    const wire::RoundWelcome welcome = enroll_now();
    if (welcome.head != step || welcome.state == step) return;
    if (welcome.donor == member_.place && send(RoundBytes::kState, step, state)) return;
  } while (pause.take());
}

RoundOutcome RoundClient::await_outcome(int64_t step, std::span<const uint8_t> message) {
  Pause pause(options_.timeout);
  do {
    RoundReply reply{};
    const Bytes answer = ask(RoundRequest::kOutcome, {step}, std::nullopt, reply);
    if (reply != RoundReply::kDone) {  // a service, or a round, that has begun anew
      send(RoundBytes::kMessage, step, message);
      continue;
    }
    FrameReader reader(answer);
    const auto outcome = wire::read_outcome(reader);
    if (!outcome) fail_on_reply();
    if (outcome->kind != RoundOutcome::Kind::kOpen) return *outcome;
  } while (pause.take());
  throw CommError(concat("the round of step ", step, " was not decided within ",
                         in_seconds(options_.timeout),
                         " s (parallel.timeout_seconds): a learner is there, and late"));
}

std::optional<Bytes> RoundClient::fetch(RoundBytes what, int64_t step, int place, int64_t size) {
  Bytes all;
  do {
    RoundReply reply{};
    const Bytes answer =
        ask(RoundRequest::kGet,
            {static_cast<int64_t>(what), step, place, std::ssize(all), wire::kRoundPieceBytes},
            std::nullopt, reply);
    if (reply != RoundReply::kDone) return std::nullopt;
    FrameReader reader(answer);
    const int64_t whole = reader.number();
    const auto piece = reader.bytes();
    const bool fits =
        std::ssize(piece) <= size - std::ssize(all) && (!piece.empty() || std::ssize(all) == size);
    if (!reader.ok() || whole != size || !fits) {
      throw CommError(concat("learner ", place, " sends ", whole, " bytes in the round of step ",
                             step, "; expected ", size,
                             ", as this learner: they are not of one config"));
    }
    all.insert(all.end(), piece.begin(), piece.end());
  } while (std::ssize(all) < size);
  return all;
}

void RoundClient::leave() noexcept {
  end_thread();  // whose next word would enroll it again
  try {
    FrameWriter writer = round_writer(RoundRequest::kLeave);
    short_.ask(writer.number(member_.place).number(member_.rank).text(member_.process));
  } catch (const Error&) {
    // Its lease ends.
  }
}

}  // namespace trireme::comm
