// Messages over wires whose time the test keeps: nothing arrives until every rank waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
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

#include <gtest/gtest.h>

#include "trireme/comm/message/message_exchange.h"

namespace trireme::comm {

// The wires between all ranks. A tick is half a round trip. A message leaves once its sender knows
// that the receiver waits for it, as over TCP sockets that do not buffer, and arrives a tick later.
class Wires {
 public:
  struct Post {
    void* data;
    size_t num_bytes;
    int posted_at;
    int done_at = -1;
  };
  using Place = std::tuple<std::string, int, int, int>;  // of a group: from, to, tag
  using PostPtr = std::shared_ptr<Post>;

  Wires() : clock_([this] { run(); }) {}
  ~Wires() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    clock_.join();
  }

  PostPtr send(const void* data, size_t num_bytes, const Place& place) {
    return post(place, const_cast<void*>(data), num_bytes, /*is_send=*/true);
  }
  PostPtr recv(void* data, size_t num_bytes, const Place& place) {
    return post(place, data, num_bytes, /*is_send=*/false);
  }
  void wait(const Post& post) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return post.done_at >= 0 && post.done_at <= now_; });
  }
  int now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }

 private:
  using Posts = std::deque<PostPtr>;

  PostPtr post(const Place& place, void* data, size_t num_bytes, bool is_send) {
    const std::lock_guard lock(mutex_);
    Posts& mine = is_send ? sends_[place] : receipts_[place];
    Posts& theirs = is_send ? receipts_[place] : sends_[place];
    ++activity_;
    const auto made = std::make_shared<Post>(Post{data, num_bytes, now_});
    if (theirs.empty()) {
      mine.push_back(made);
      return made;
    }
    const PostPtr other = theirs.front();
    theirs.pop_front();
    Post& send = is_send ? *made : *other;
    Post& receipt = is_send ? *other : *made;
    EXPECT_EQ(send.num_bytes, receipt.num_bytes);
    std::memcpy(receipt.data, send.data, std::min(send.num_bytes, receipt.num_bytes));
    send.done_at = std::max(send.posted_at, receipt.posted_at + 1);
    receipt.done_at = send.done_at + 1;
    last_ = std::max(last_, receipt.done_at);
    return made;
  }

  // Time goes on when something is under way and nobody has posted anything for a while. A slow
  // machine may count more ticks than there are, never fewer.
  void run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const int before = activity_;
      changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return stop_; });
      if (activity_ == before && last_ > now_) {
        ++now_;
        changed_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Place, Posts> sends_, receipts_;
  int now_ = 0, last_ = 0, activity_ = 0;
  bool stop_ = false;
  std::thread clock_;
};

class WireMessage : public ChannelMessage {
 public:
  WireMessage(Wires& wires, Wires::PostPtr post, int source)
      : wires_(wires), post_(std::move(post)), source_(source) {}
  void wait(std::chrono::milliseconds) override { wires_.wait(*post_); }
  void cancel() override {}
  int source() const override { return source_; }

 private:
  Wires& wires_;
  const Wires::PostPtr post_;
  const int source_;
};

class WireChannel : public MessageChannel {
 public:
  WireChannel(Wires& wires, int rank, int size, std::string group = {})
      : wires_(wires), group_(std::move(group)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& transport() const override { return transport_; }
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    return std::make_unique<WireMessage>(
        wires_, wires_.send(data, num_bytes, {group_, rank_, peer, tag}), peer);
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    return std::make_unique<WireMessage>(
        wires_, wires_.recv(data, num_bytes, {group_, peer, rank_, tag}), peer);
  }
  void leave_word(const std::string&) noexcept override {}
  std::string word_left() noexcept override { return {}; }
  void close() noexcept override {}
  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds) override {
    const auto self = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<WireChannel>(wires_, static_cast<int>(self),
                                         static_cast<int>(members.size()), group_ + "/" + uid);
  }

 private:
  Wires& wires_;
  const std::string group_;
  const int rank_, size_;
  const std::string transport_ = "wires";
};

}  // namespace trireme::comm
