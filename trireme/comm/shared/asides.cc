#include "trireme/comm/shared/asides.h"

namespace trireme::comm::inline internal {

void Asides::keep(int source, const Letter& letter, std::span<const std::byte> data) {
  auto message = std::make_shared<Aside>(letter);
  message->data.assign(data.begin(), data.end());
  kept_[{source, letter.tag}].push_back(std::move(message));
}

void Asides::keep_arriving(int source, const Letter& letter, Envelope& envelope) {
  auto message = std::make_shared<Aside>(letter);
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

}  // namespace trireme::comm::inline internal
