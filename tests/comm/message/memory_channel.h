// A MessageChannel between threads of this process, for tests of what is around a channel.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/message/message_exchange.h"

namespace trireme::comm {

// What is under way between all ranks, of a group and of its splits.
class Mail {
 public:
  using Place = std::tuple<std::string, int, int, int>;  // group, from, to, tag

  void put(const Place& place, const void* data, size_t num_bytes) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    boxes_[place].emplace_back(bytes, bytes + num_bytes);
    arrived_.notify_all();
  }

  // Waits for a message to `to`, and returns whose it is.
  int take(const std::string& group, int from, int to, int tag, void* data, size_t num_bytes,
           int size, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    int found = -1;
    const bool is_there = arrived_.wait_for(lock, timeout, [&] {
      for (int rank = 0; rank < size && found < 0; ++rank) {
        const bool is_meant = from == kAnySource || from == rank;
        if (is_meant && !boxes_[{group, rank, to, tag}].empty()) found = rank;
      }
      return found >= 0;
    });
    if (!is_there) throw CommError("no message came in time");
    std::deque<std::vector<std::byte>>& box = boxes_[{group, found, to, tag}];
    if (box.front().size() != num_bytes) throw CommError("a message of another size");
    std::memcpy(data, box.front().data(), num_bytes);
    box.pop_front();
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Place, std::deque<std::vector<std::byte>>> boxes_;
};

class MemoryChannel final : public MessageChannel {
 public:
  MemoryChannel(std::shared_ptr<Mail> mail, int rank, int size, std::string group = "world")
      : mail_(std::move(mail)), rank_(rank), size_(size), group_(std::move(group)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& transport() const override { return transport_; }
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    mail_->put({group_, rank_, peer, tag}, data, num_bytes);
    return std::make_unique<Message>(*this, nullptr, 0, peer, tag);
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    return std::make_unique<Message>(*this, data, num_bytes, peer, tag);
  }
  void leave_word(const std::string&) noexcept override {}
  std::string word_left() noexcept override { return {}; }
  void close() noexcept override {}
  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds) override {
    for (size_t place = 0; place < members.size(); ++place) {
      if (members[place] != rank_) continue;
      return std::make_unique<MemoryChannel>(mail_, static_cast<int>(place),
                                             static_cast<int>(members.size()), group_ + "/" + uid);
    }
    throw CommError("not a member");
  }

 private:
  class Message final : public ChannelMessage {
   public:
    Message(const MemoryChannel& channel, void* data, size_t num_bytes, int peer, int tag)
        : channel_(channel), data_(data), num_bytes_(num_bytes), peer_(peer), tag_(tag) {}
    void wait(std::chrono::milliseconds timeout) override {
      if (data_ == nullptr) return;  // sends are copied at once
      peer_ = channel_.mail_->take(channel_.group_, peer_, channel_.rank_, tag_, data_, num_bytes_,
                                   channel_.size_, timeout);
    }
    void cancel() override {}
    int source() const override { return peer_; }

   private:
    const MemoryChannel& channel_;
    void* data_;
    size_t num_bytes_;
    int peer_;
    int tag_;
  };

  const std::shared_ptr<Mail> mail_;
  const int rank_, size_;
  const std::string group_;
  const std::string transport_ = "memory";
};

// Runs `function(rank)` on a thread for each rank.
template <typename Function>
void run_threads(int size, const Function& function) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&function, rank] { function(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trireme::comm
