#include "trireme/comm/store/store_client.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include <sys/socket.h>

#include <c10/util/Exception.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {

// A request has a connection to itself while it runs, so a wait for a key holds up no other call,
// and a reply needs no number to find its request. The server has the keys in its memory: when it
// is lost they are, and whoever serves its address later is another job's. So the first loss is
// final (is_lost_), and nothing is tried again. Only the first connection is patient, because rank
// 0 may start much later than the others. Both sides prove that they know the token before any key
// is sent, or a stranger at the address would get the job's keys.

namespace {

using Clock = std::chrono::steady_clock;
using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::Request;

// Pause between attempts to reach a server that is not there yet.
constexpr std::chrono::milliseconds kRetryDelay{50};
// A server that has answered once is either there or gone.
constexpr std::chrono::milliseconds kSecondConnectionPatience{10'000};
// Limit on an attempt that may be given up for another reason.
constexpr std::chrono::seconds kCancellablePatience{5};

// The same in all connections of this process. Changes after a fork.
const std::array<char, 32>& process_name() {
  static pid_t owner = 0;
  static std::array<char, 32> name;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) std::memcpy(name.data(), unique_name().data(), name.size());
  owner = getpid();
  return name;
}

FrameWriter writer_of(Request request) { return FrameWriter(static_cast<uint8_t>(request)); }

std::chrono::milliseconds patience_of(std::chrono::milliseconds timeout) {
  // An endless wait has a deadline too, so that one code path adds to the clock without overflow.
  constexpr std::chrono::hours kYear(24 * 365);
  return timeout.count() <= 0 || timeout > kYear ? kYear : timeout;
}

// For errors: who asks, and how to choose another port.
std::string name_of(const StoreClientOptions& options) {
  return options.size == 0 ? options.member : concat("rank ", options.rank);
}

std::string port_advice(const StoreClientOptions& options) {
  return options.size == 0 ? options.port_advice
                           : "set MASTER_PORT to a free port on all ranks of this job";
}

// Throws unless the server has admitted this member.
void check_verdict(wire::Verdict verdict, const StoreClientOptions& options,
                   const std::string& where) {
  using wire::Verdict;
  TRIREME_CHECK(verdict != Verdict::kWrongToken, where, " refuses ", name_of(options),
                options.token.empty() ? ", which has no token" : ": its token is a different one",
                "; give the whole job the same TRIREME_TOKEN or TRIREME_TOKEN_FILE, and every job "
                "a port of its own");
  TRIREME_CHECK(verdict != Verdict::kOtherJob, where, " is another job's; ", port_advice(options));
  TRIREME_CHECK(verdict != Verdict::kOtherSize, where,
                " is of a job of another size; expected one of ", options.size,
                " ranks: ", port_advice(options));
  TRIREME_CHECK(verdict != Verdict::kRankTaken, where, " already has a ", name_of(options),
                " in another process; start each rank once, and ", port_advice(options));
  TRIREME_CHECK(verdict == Verdict::kWelcome, where, " gave verdict ",
                static_cast<uint32_t>(verdict), ", which this version does not know");
}

// False when the connection broke, as happens when the server ends or is busy.
bool introduce(int fd, const StoreClientOptions& options, const std::string& where,
               Clock::time_point deadline) {
  wire::Greeting greeting;
  wire::Answer answer;
  // A wrong beginning is reported at once, whatever follows.
  if (!recv_all(fd, &greeting.magic, sizeof(greeting.magic), deadline)) return false;
  TRIREME_CHECK(greeting.magic == wire::kMagic, where,
                " is not a store of this version of Trireme; ", port_advice(options));
  if (!recv_all(fd, &greeting.nonce, sizeof(greeting.nonce), deadline)) return false;
  wire::Hello hello;
  fill_with_entropy(hello.nonce);
  hello.rank = static_cast<uint32_t>(options.rank);
  hello.size = static_cast<uint32_t>(options.size);
  hello.process = process_name();
  hello.job = sha256(options.job);
  hello.proof = wire::client_proof(options.token, greeting, hello);
  if (!send_all(fd, &hello, sizeof(hello), deadline)) return false;
  if (!recv_all(fd, &answer, sizeof(answer), deadline)) return false;
  check_verdict(answer.verdict, options, where);
  TRIREME_CHECK(is_same_digest(answer.proof, wire::server_proof(options.token, greeting, hello)),
                where, " does not know this job's token, so it is another's; ",
                port_advice(options));
  return true;
}

}  // namespace

Descriptor join_store(const StoreClientOptions& options, const std::vector<Endpoint>& endpoints,
                      std::chrono::milliseconds timeout) {
  const std::string where =
      concat("the store at ", options.address.host, ":", options.address.port);
  const Clock::time_point deadline = Clock::now() + patience_of(timeout);
  std::string problem = "nobody answered";
  do {
    if (options.cancellation) options.cancellation->check("reaching " + where);
    const Clock::time_point end =
        options.cancellation ? std::min(deadline, Clock::now() + kCancellablePatience) : deadline;
    Descriptor socket = connect_to(endpoints, end, problem);
    if (socket.is_open()) {
      const auto watch = comm::watch(options.cancellation, [fd = socket.get()](const std::string&) {
        ::shutdown(fd, SHUT_RDWR);
      });
      if (introduce(socket.get(), options, where, end)) return socket;
      // EAGAIN: the deadline has passed.
      problem = errno == EAGAIN ? "it says nothing" : "it closed the connection";
    }
    std::this_thread::sleep_for(kRetryDelay);
  } while (Clock::now() < deadline);
  const bool is_agent = options.size == 0;
  throw CommError(concat(name_of(options), is_agent ? "" : concat(" of ", options.size),
                         ": no store at ", options.address.host, ":", options.address.port,
                         " within ", in_seconds(timeout), " s: ", problem, "; ",
                         is_agent ? options.server : "rank 0", " serves it"));
}

StoreClient::StoreClient(StoreClientOptions options, std::shared_ptr<StoreServer> server)
    : c10d::Store(options.timeout),
      options_(std::move(options)),
      endpoints_(resolve(options_.address)),
      server_(std::move(server)) {
  idle_.push_back(join_store(options_, endpoints_, options_.timeout));
}

StoreClient::~StoreClient() = default;

std::string StoreClient::refusals() const { return server_ != nullptr ? server_->refusals() : ""; }

void StoreClient::fail_lost(const char* how) {
  is_lost_ = true;
  C10_THROW_ERROR(DistNetworkError, concat("the store of rank 0 at ", options_.address.host, ":",
                                           options_.address.port, how));
}

// An idle connection, or a new one.
Descriptor StoreClient::take_connection() {
  // A server at that address now would serve another job.
  if (is_lost_) fail_lost(" is gone");
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Descriptor socket = std::move(idle_.back());
      idle_.pop_back();
      return socket;
    }
  }
  try {
    return join_store(options_, endpoints_, std::min(options_.timeout, kSecondConnectionPatience));
  } catch (const Error&) {
    fail_lost(" is gone");
  }
}

Bytes StoreClient::ask(FrameWriter& request, std::chrono::milliseconds patience) {
  const Bytes& frame = request.finish();
  Descriptor socket = take_connection();
  // A rank that serves the store itself cannot lose it, however busy its host is.
  const auto answer_patience = server_ != nullptr ? patience_of({}) : options_.answer_patience;
  const Clock::time_point deadline = Clock::now() + patience + answer_patience;
  uint32_t length = 0;
  Bytes message;
  bool arrives = send_all(socket.get(), frame.data(), frame.size(), deadline) &&
                 recv_all(socket.get(), &length, sizeof(length), deadline);
  arrives = arrives && length > 0 && length <= wire::kMaxFrameBytes;
  if (arrives) message.resize(length);
  arrives = arrives && recv_all(socket.get(), message.data(), length, deadline);
  if (!arrives) fail_lost(errno == EAGAIN ? " does not answer" : " is gone");
  {
    // Only a connection whose reply was read to its end is used again.
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }
  FrameReader reader(message);
  const auto reply = static_cast<wire::Reply>(reader.what());
  if (reply == wire::Reply::kLate) {
    C10_THROW_ERROR(DistStoreError, concat("timed out after ", in_seconds(patience),
                                           " s waiting for keys of the "
                                           "store:",
                                           reader.text()));
  }
  if (reply != wire::Reply::kDone) C10_THROW_ERROR(DistStoreError, reader.text());
  return {message.begin() + 1, message.end()};
}

Bytes StoreClient::ask_for(Request request, const std::vector<std::string>& keys,
                           std::chrono::milliseconds timeout) {
  FrameWriter writer = writer_of(request);
  const std::chrono::milliseconds patience = patience_of(timeout);
  writer.number(patience.count());
  for (const std::string& key : keys) writer.text(key);
  return ask(writer, patience);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  // The same one, which any thread may use.
  return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  multiSet({key}, {value});
}

Bytes StoreClient::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  FrameWriter writer = writer_of(Request::kCompareSet);
  const Bytes reply = ask(writer.text(key).bytes(expected).bytes(desired), {});
  const auto value = FrameReader(reply).bytes();
  return {value.begin(), value.end()};
}

Bytes StoreClient::get(const std::string& key) { return multiGet({key}).front(); }

int64_t StoreClient::add(const std::string& key, int64_t value) {
  FrameWriter writer = writer_of(Request::kAdd);
  const Bytes reply = ask(writer.text(key).number(value), {});
  return FrameReader(reply).number();
}

bool StoreClient::deleteKey(const std::string& key) {
  FrameWriter writer = writer_of(Request::kDelete);
  const Bytes reply = ask(writer.text(key), {});
  return FrameReader(reply).number() != 0;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  FrameWriter writer = writer_of(Request::kCheck);
  for (const std::string& key : keys) writer.text(key);
  const Bytes reply = ask(writer, {});
  return FrameReader(reply).number() != 0;
}

int64_t StoreClient::getNumKeys() {
  FrameWriter writer = writer_of(Request::kCount);
  const Bytes reply = ask(writer, {});
  return FrameReader(reply).number();
}

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void StoreClient::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  ask_for(Request::kWait, keys, timeout);
}

void StoreClient::append(const std::string& key, const std::vector<uint8_t>& value) {
  FrameWriter writer = writer_of(Request::kAppend);
  ask(writer.text(key).bytes(value), {});
}

std::vector<Bytes> StoreClient::multiGet(const std::vector<std::string>& keys) {
  const Bytes reply = ask_for(Request::kGet, keys, timeout_);
  FrameReader reader(reply);
  std::vector<Bytes> values;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto value = reader.bytes();
    values.emplace_back(value.begin(), value.end());
  }
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  FrameWriter writer = writer_of(Request::kSet);
  for (size_t i = 0; i < keys.size(); ++i) writer.text(keys[i]).bytes(values.at(i));
  ask(writer, {});
}

}  // namespace trireme::comm
