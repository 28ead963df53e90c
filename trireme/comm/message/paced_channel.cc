#include "trireme/comm/message/paced_channel.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::comm {

// The clock of a rank and its lines to the others.
class PacedLines {
 public:
  PacedLines(int rank, const PacedOptions& options) : packet_bytes_(options.packet_bytes) {
    for (size_t peer = 0; peer < options.to.size(); ++peer) {
      LinkShape shape = options.to[peer];
      shape.queue_bytes = std::numeric_limits<double>::infinity();
      links_.emplace_back(shape, random_key(options.seed, concat(rank, " to ", peer)));
    }
  }

  int64_t now_ns() const {
    const std::lock_guard lock(mutex_);
    return now_ns_;
  }
  void advance(int64_t nanoseconds) {
    const std::lock_guard lock(mutex_);
    now_ns_ += nanoseconds;
  }
  void reach(int64_t time_ns) {
    const std::lock_guard lock(mutex_);
    now_ns_ = std::max(now_ns_, time_ns);
  }
  LinkCounts counts(size_t line) const {
    const std::lock_guard lock(mutex_);
    return links_.at(line).counts();
  }

  // Sends a message now. Returns when its last packet is there.
  int64_t send(size_t line, size_t num_bytes) {
    struct Packet {
      int64_t time_ns;
      size_t num_bytes;
    };
    const std::lock_guard lock(mutex_);
    PacedLink& link = links_.at(line);
    const int64_t delay_ns = link.shape().delay.count();
    int64_t arrival_ns = now_ns_;
    std::deque<Packet> again;
    const auto send_packet = [&](const Packet& packet) {
      const PacedLink::Passage passage = link.send(packet.time_ns, packet.num_bytes);
      if (passage.fate == PacedLink::Fate::kLost) {
        again.push_back({passage.arrival_ns + delay_ns, packet.num_bytes});
      } else {
        arrival_ns = std::max(arrival_ns, passage.arrival_ns);
      }
    };
    for (size_t done = 0; done < num_bytes; done += packet_bytes_) {
      send_packet({now_ns_, std::min(packet_bytes_, num_bytes - done)});
    }
    for (; !again.empty(); again.pop_front()) {
      const Packet packet = again.front();
      send_packet(packet);
    }
    return arrival_ns;
  }

 private:
  const size_t packet_bytes_;
  mutable std::mutex mutex_;  // of all below
  int64_t now_ns_ = 0;
  std::vector<PacedLink> links_;
};

namespace {

constexpr size_t kStampBytes = sizeof(int64_t);

class PacedMessage final : public ChannelMessage {
 public:
  // A frame is the time of arrival and then the data.
  std::vector<std::byte> frame{};
  ChannelMessagePtr inner{};  // ends before the frame, which it reads or fills
  // Of a receive:
  void* data = nullptr;
  std::shared_ptr<PacedLines> lines{};

  void wait(std::chrono::milliseconds timeout) override {
    inner->wait(timeout);
    if (lines == nullptr) return;
    int64_t arrival_ns = 0;
    std::memcpy(&arrival_ns, frame.data(), kStampBytes);
    std::memcpy(data, frame.data() + kStampBytes, frame.size() - kStampBytes);
    lines->reach(arrival_ns);
  }
  void cancel() override { inner->cancel(); }
  int source() const override { return inner->source(); }
};

std::vector<int> first_numbers(int size) {
  std::vector<int> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

PacedChannel::PacedChannel(std::unique_ptr<MessageChannel> inner, const PacedOptions& options)
    : inner_(std::move(inner)),
      lines_(std::make_shared<PacedLines>(inner_->rank(), options)),
      line_of_(first_numbers(inner_->size())),
      transport_("paced " + inner_->transport()) {
  TRIREME_ASSERT(options.to.size() == line_of_.size() && options.packet_bytes > 0,
                 options.to.size(), " lines to ", line_of_.size(), " ranks in packets of ",
                 options.packet_bytes, " bytes");
}

PacedChannel::~PacedChannel() = default;

std::chrono::nanoseconds PacedChannel::now() const {
  return std::chrono::nanoseconds(lines_->now_ns());
}

void PacedChannel::advance(std::chrono::nanoseconds duration) { lines_->advance(duration.count()); }

LinkCounts PacedChannel::counts_to(int peer) const {
  return lines_->counts(static_cast<size_t>(line_of_.at(static_cast<size_t>(peer))));
}

ChannelMessagePtr PacedChannel::send(const void* data, size_t num_bytes, int peer, int tag) {
  auto message = std::make_unique<PacedMessage>();
  const int line = line_of_.at(static_cast<size_t>(peer));
  const int64_t arrival_ns = lines_->send(static_cast<size_t>(line), num_bytes);
  message->frame.resize(kStampBytes + num_bytes);
  std::memcpy(message->frame.data(), &arrival_ns, kStampBytes);
  std::memcpy(message->frame.data() + kStampBytes, data, num_bytes);
  message->inner = inner_->send(message->frame.data(), message->frame.size(), peer, tag);
  return message;
}

ChannelMessagePtr PacedChannel::recv(void* data, size_t num_bytes, int peer, int tag) {
  auto message = std::make_unique<PacedMessage>();
  message->data = data;
  message->lines = lines_;
  message->frame.resize(kStampBytes + num_bytes);
  message->inner = inner_->recv(message->frame.data(), message->frame.size(), peer, tag);
  return message;
}

std::unique_ptr<MessageChannel> PacedChannel::split(const std::string& uid,
                                                    const std::vector<int>& members,
                                                    std::chrono::milliseconds timeout) {
  std::vector<int> line_of;
  for (const int member : members) line_of.push_back(line_of_.at(static_cast<size_t>(member)));
  std::unique_ptr<MessageChannel> inner = inner_->split(uid, members, timeout);
  return std::unique_ptr<MessageChannel>(
      new PacedChannel(std::move(inner), lines_, std::move(line_of)));
}

PacedChannel::PacedChannel(std::unique_ptr<MessageChannel> inner, std::shared_ptr<PacedLines> lines,
                           std::vector<int> line_of)
    : inner_(std::move(inner)),
      lines_(std::move(lines)),
      line_of_(std::move(line_of)),
      transport_("paced " + inner_->transport()) {}

}  // namespace trireme::comm
