#include "trireme/launch/network/packet_paths.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/network/network_address.h"

namespace trireme::launch {
namespace {

// RFC 791: the header, of which the destination is the last part that every packet has.
constexpr size_t kHeaderBytes = 20;
constexpr size_t kDestination = 16;

uint8_t byte_at(std::span<const std::byte> packet, size_t index) {
  return std::to_integer<uint8_t>(packet[index]);
}

// The host that an IPv4 packet is for; nothing when it is none of this network's.
std::optional<size_t> destination_of(std::span<const std::byte> packet) {
  if (packet.size() < kHeaderBytes || byte_at(packet, 0) >> 4 != 4) return std::nullopt;
  for (size_t i = 0; i < kNetworkBytes.size(); ++i) {
    if (byte_at(packet, kDestination + i) != kNetworkBytes[i]) return std::nullopt;
  }
  const uint8_t last = byte_at(packet, kDestination + kNetworkBytes.size());
  if (last == 0) return std::nullopt;
  return last - size_t{1};
}

}  // namespace

PacketPaths::PacketPaths(const NetworkFile& network, size_t most_bytes) : most_bytes_(most_bytes) {
  for (const NetworkFile::Link& link : network.links) {
    for (const auto& [from, to] :
         {std::pair(link.first, link.second), std::pair(link.second, link.first)}) {
      const std::string name = concat(network.hosts.at(from), " to ", network.hosts.at(to));
      const RandomKey key = random_key(network.seed, name);
      lines_.emplace(std::pair(from, to), Line{comm::PacedLink(link.shape, key)});
    }
  }
}

void PacketPaths::take(size_t host, int64_t now_ns, std::span<const std::byte> packet) {
  const std::optional<size_t> to = destination_of(packet);
  if (!to) return;
  if (*to == kControlNumber - 1) return change_lines_of(host, now_ns, packet);
  const auto found = lines_.find({host, *to});
  if (found == lines_.end()) return;
  Line& line = found->second;
  if (bytes_under_way_ + packet.size() > most_bytes_) {
    ++line.beyond;
    return;
  }
  const auto passage = line.link.send(now_ns, packet.size());
  if (passage.fate != comm::PacedLink::Fate::kArrives) return;
  put(passage.arrival_ns, *to, {packet.begin(), packet.end()});
}

void PacketPaths::put(int64_t arrival_ns, size_t host, std::vector<std::byte> packet) {
  bytes_under_way_ += packet.size();
  under_way_.emplace(std::pair(arrival_ns, num_taken_++), Arrival{host, std::move(packet)});
}

void PacketPaths::change_lines_of(size_t host, int64_t now_ns, std::span<const std::byte> packet) {
  const std::optional<LineChange> change = requested_change(packet);
  if (!change || bytes_under_way_ + packet.size() > most_bytes_) return;
  // One at a time, so that the end of a fault is not the end of another.
  const bool is_possible = change->is_none() || !changes_.contains(host);
  if (is_possible) {
    changes_.erase(host);
    if (!change->is_none()) changes_.emplace(host, *change);
    for (auto& [ends, line] : lines_) {
      if (ends.first == host) line.link.worsen(change->delay, change->loss);
    }
  }
  put(now_ns, host, answer_to(packet, is_possible));
}

std::optional<PacketPaths::Arrival> PacketPaths::next(int64_t now_ns) {
  if (under_way_.empty() || under_way_.begin()->first.first > now_ns) return std::nullopt;
  Arrival arrival = std::move(under_way_.begin()->second);
  under_way_.erase(under_way_.begin());
  bytes_under_way_ -= arrival.packet.size();
  return arrival;
}

std::optional<int64_t> PacketPaths::next_time() const {
  if (under_way_.empty()) return std::nullopt;
  return under_way_.begin()->first.first;
}

std::vector<PacketPaths::Direction> PacketPaths::directions() const {
  std::vector<Direction> directions;
  for (const auto& [ends, line] : lines_) {
    comm::LinkCounts counts = line.link.counts();
    counts.dropped += line.beyond;
    directions.push_back({ends.first, ends.second, counts});
  }
  return directions;
}

}  // namespace trireme::launch
