#include "trireme/comm/shared/message_rings.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/shared/heap.h"

namespace trireme::comm {

Letter::Letter(const Envelope& envelope)
    : num_bytes(read_once(envelope.num_bytes)),
      place(read_once(envelope.place)),
      dtype(read_once(envelope.dtype)),
      tag(read_once(envelope.tag)) {}

SegmentSize MessageRings::segment_size(int size) {
  const auto pairs = static_cast<size_t>(size) * static_cast<size_t>(size);
  // A ring for each ordered pair: each has one writer and one reader, and needs no lock between
  // processes.
  return {static_cast<size_t>(size) * sizeof(Bell) + pairs * kEnvelopes * sizeof(Envelope),
          pairs * kEnvelopes * kPieces * kPieceBytes};
}

MessageRings::MessageRings(std::shared_ptr<Segment> segment, size_t committed, size_t reserved,
                           int rank, int size)
    : segment_(std::move(segment)),
      bells_(reinterpret_cast<Bell*>(segment_->data() + committed)),
      envelopes_(reinterpret_cast<Envelope*>(bells_ + size)),
      pieces_offset_(reserved),
      rank_(rank),
      size_(size) {}

std::span<Envelope> MessageRings::ring(int from, int to) const {
  const size_t pair = static_cast<size_t>(from) * size_ + to;
  return {envelopes_ + pair * kEnvelopes, kEnvelopes};
}

Envelope* MessageRings::oldest(int source, std::optional<int> tag) const {
  const std::span<Envelope> ring = from(source);
  Envelope* best = nullptr;
  uint64_t best_number = 0;
  // Search twice: an older message may have arrived in a slot already passed before a later one was
  // found.
  for (int look = 0; look < 2; ++look) {
    for (Envelope& found : ring) {
      // In this order: a lent envelope may be given back and reused meanwhile, and it is free
      // before it is ready.
      if (found.taken.load() != Envelope::kFree || found.is_ready.load() == 0) continue;
      if (tag && read_once(found.tag) != *tag) continue;
      const uint64_t number = read_once(found.number);
      if (best != nullptr && number >= best_number) continue;
      best = &found;
      best_number = number;
    }
    if (best == nullptr) return nullptr;
  }
  return best;
}

bool MessageRings::is_full(std::span<const Envelope> ring) {
  return std::ranges::all_of(ring, [](const Envelope& e) { return e.is_ready.load() != 0; });
}

size_t MessageRings::offset_of(int from, int to, const Envelope& envelope) const {
  const size_t pair = static_cast<size_t>(from) * size_ + to;
  const size_t index = pair * kEnvelopes + (&envelope - ring(from, to).data());
  return pieces_offset_ + index * kPieces * kPieceBytes;
}

void MessageRings::commit_pieces(int peer, const Envelope& envelope) {
  segment_->commit(offset_of(rank_, peer, envelope), kPieces * kPieceBytes);
}

std::span<std::byte> MessageRings::piece_to(int peer, const Envelope& envelope,
                                            size_t number) const {
  const size_t offset = offset_of(rank_, peer, envelope) + number % kPieces * kPieceBytes;
  return {segment_->data() + offset, kPieceBytes};
}

std::span<const std::byte> MessageRings::next_piece(int source, const Envelope& envelope,
                                                    size_t offset, size_t num_bytes) const {
  const size_t number = offset / kPieceBytes;
  // A sender is at most kPieces ahead. Any other value means that nothing has arrived.
  const uint32_t ahead = envelope.written.load() - static_cast<uint32_t>(number);
  if (offset >= num_bytes || ahead == 0 || ahead > kPieces) return {};
  const size_t begin = offset_of(source, rank_, envelope) + number % kPieces * kPieceBytes;
  return {segment_->data() + begin, std::min(kPieceBytes, num_bytes - offset)};
}

void MessageRings::next_piece_read(Envelope& envelope, size_t offset) {
  envelope.read.store(static_cast<uint32_t>(offset / kPieceBytes + 1));
}

void Asides::keep(int source, const Letter& letter, std::span<const std::byte> data) {
  auto message = std::make_shared<Aside>(letter);
  // A copy: the ring's place is needed for the message that the receiver waits for.
  message->data.assign(data.begin(), data.end());
  kept_[{source, letter.tag}].push_back(std::move(message));
}

void Asides::keep_arriving(int source, const Letter& letter, Envelope& envelope) {
  auto message = std::make_shared<Aside>(letter);
  // In both, because a recv may take it before it is whole.
  kept_[{source, letter.tag}].push_back(message);
  arriving_[source] = {std::move(message), &envelope};
  advance();
}

bool Asides::advance() {
  if (arriving_.empty()) return false;
  bool has_moved = false;
  for (auto& [source, arriving] : arriving_) has_moved |= advance(source, arriving);
  std::erase_if(arriving_, [](const auto& item) { return item.second.message->is_whole(); });
  return has_moved;
}

bool Asides::advance(int source, Arriving& arriving) {
  Aside& message = *arriving.message;
  Envelope& envelope = *arriving.envelope;
  bool has_moved = false;
  for (;;) {
    const size_t offset = message.data.size();
    const auto piece = rings_.next_piece(source, envelope, offset, message.letter.num_bytes);
    if (piece.empty()) break;
    message.data.insert(message.data.end(), piece.begin(), piece.end());
    MessageRings::next_piece_read(envelope, offset);
    has_moved = true;
  }
  if (message.is_whole()) {
    envelope.give_back(rings_.bell_of(source));
    return true;
  }
  // The sender may wait for room for its next piece.
  if (has_moved) rings_.bell_of(source).ring();
  return has_moved;
}

AsidePtr Asides::take(int source, int tag) {
  if (kept_.empty()) return nullptr;
  const auto found = kept_.find({source, tag});
  if (found == kept_.end()) return nullptr;
  AsidePtr message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) kept_.erase(found);
  return message;
}

void Asides::clear() {
  kept_.clear();
  arriving_.clear();
}

}  // namespace trireme::comm
