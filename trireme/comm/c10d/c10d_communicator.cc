#include "trireme/comm/c10d/c10d_communicator.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/message/message_exchange.h"

namespace trireme::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

constexpr const char* kFailureKey = "failure";
// A store whose server is stopped never answers.
constexpr auto kStorePatience = std::chrono::milliseconds(500);

class C10dMessage : public ChannelMessage {
 public:
  explicit C10dMessage(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void wait(std::chrono::milliseconds timeout) override {
    if (!work_->wait(timeout)) throw std::runtime_error("the wait was aborted");
  }
  void cancel() override { work_->abort(); }
  int source() const override { return work_->sourceRank(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

// Runs `ask` on a thread that is abandoned if it takes too long.
std::string ask_store(const std::function<std::string()>& ask) {
  auto answer = std::make_shared<std::promise<std::string>>();
  auto future = answer->get_future();
  std::thread([answer, ask] {
    try {
      answer->set_value(ask());
    } catch (...) {  // the store is gone and has no word
      answer->set_value("");
    }
  }).detach();
  return future.wait_for(kStorePatience) == std::future_status::ready ? future.get() : "";
}

class C10dChannel : public MessageChannel {
 public:
  C10dChannel(C10dBackendMaker make_backend, StorePtr store, int rank, int size,
              std::string transport, std::chrono::milliseconds timeout)
      : make_backend_(std::move(make_backend)),
        store_(std::move(store)),
        rank_(rank),
        size_(size),
        transport_(std::move(transport)) {
    // A write to a peer that has gone raises SIGPIPE, which would end the program.
    const NoPipeSignal quiet;
    // A prefix, because the word of a failure is in the same store.
    backend_ = make_backend_(c10::make_intrusive<c10d::PrefixStore>("backend", store_), rank, size,
                             timeout);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& transport() const override { return transport_; }

  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    std::vector<at::Tensor> bytes = {bytes_of(const_cast<void*>(data), num_bytes)};
    return start([&](c10d::Backend& backend) { return backend.send(bytes, peer, tag); });
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    std::vector<at::Tensor> bytes = {bytes_of(data, num_bytes)};
    return start([&](c10d::Backend& backend) {
      return peer == kAnySource ? backend.recvAnysource(bytes, tag)
                                : backend.recv(bytes, peer, tag);
    });
  }

  void leave_word(const std::string& reason) noexcept override {
    try {
      ask_store([store = store_, reason] {
        // The first word is the cause.
        if (!store->check({kFailureKey})) store->set(kFailureKey, reason);
        return std::string();
      });
    } catch (...) {  // no thread could start: the peers only see broken connections
    }
  }
  std::string word_left() noexcept override {
    try {
      return ask_store([store = store_] {
        return store->check({kFailureKey}) ? store->get_to_str(kFailureKey) : std::string();
      });
    } catch (...) {
      return "";
    }
  }
  void close() noexcept override {
    const NoPipeSignal quiet;
    // Declared before the lock, so it is freed after it.
    BackendPtr last;
    const std::lock_guard lock(mutex_);
    std::swap(last, backend_);
  }

  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds timeout) override {
    const auto self = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<C10dChannel>(
        // A prefix for each group: they must not read each other's keys.
        make_backend_, c10::make_intrusive<c10d::PrefixStore>(uid, store_), static_cast<int>(self),
        static_cast<int>(members.size()), transport_, timeout);
  }

 private:
  static at::Tensor bytes_of(void* data, size_t num_bytes) {
    return at::from_blob(data, {static_cast<int64_t>(num_bytes)}, at::kByte);
  }

  template <typename Start>
  ChannelMessagePtr start(Start&& start) {
    const NoPipeSignal quiet;
    const std::lock_guard lock(mutex_);  // a backend takes calls from one thread at a time
    if (backend_ == nullptr) throw std::runtime_error("the connections are closed");
    return std::make_unique<C10dMessage>(start(*backend_));
  }

  C10dBackendMaker make_backend_;
  StorePtr store_;
  int rank_;
  int size_;
  std::mutex mutex_;
  BackendPtr backend_;
  std::string transport_;
};

}  // namespace

std::unique_ptr<Communicator> make_c10d_group(const C10dBackendMaker& make_backend,
                                              const StorePtr& store, int rank, int size,
                                              const C10dOptions& options) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  try {
    auto channel = options.recorder.join([&] {
      return std::make_unique<C10dChannel>(make_backend, store, rank, size, options.transport,
                                           options.timeout);
    });
    return std::make_unique<MessageCommunicator>(std::move(channel), options.name, options.timeout,
                                                 options.recorder, options.cancellation);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(concat("joining group ", options.name, " as rank ", rank, " of ", size, ": ",
                           words_of(error)));
  }
}

NoPipeSignal::NoPipeSignal() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  // In this thread only: other threads' signals are the program's.
  pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

NoPipeSignal::~NoPipeSignal() {
  const timespec now{};
  // Consumes the signal that this write raised. One that was already pending is left to the
  // program.
  while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace trireme::comm
