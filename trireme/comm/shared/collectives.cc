// Length: four collectives share the same tables of operands. In separate files, each would repeat
// them.
#include "trireme/comm/shared/collectives.h"

#include <algorithm>
#include <cstring>

#include <c10/util/SmallVector.h>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/shared/heap.h"

namespace trireme::comm::collectives {

// Each operation has several ways: through the note, flat, staged, or in place. A rank chooses by
// what all ranks see, the sizes in the call and the places in the first posts, so all choose the
// same way and make the same meets. The bits are the same on every way, because each sums an
// element in rank order and rounds once. What concerns a rank itself it takes from its call and not
// from its posts, where a damaged peer may have written.

namespace {

template <typename T>
using Small = c10::SmallVector<T, 16>;

// Up to this size, every rank reduces all of an ordinary operand. That saves a meet, which costs
// more than the arithmetic.
constexpr size_t kFlatBytes = 8 << 10;
// Up to this size, a copy into the slot costs less than the closing meet of an operand in place.
constexpr size_t kCopyBytes = 1 << 10;
constexpr size_t kAlignment = 64;  // a multiple of every dtype's size; parts share no cache line

size_t chunk_at(size_t total, size_t offset, size_t limit) {
  return offset >= total ? 0 : std::min(limit, total - offset);
}

size_t num_chunks(size_t total, size_t limit) {
  return std::max<size_t>(1, (total + limit - 1) / limit);
}

void copy_bytes(std::byte* to, const std::byte* from, size_t num_bytes) {
  if (num_bytes > 0 && to != from) std::memcpy(to, from, num_bytes);
}

// Rank `rank`'s part of a chunk. All parts are aligned and of one size, but the last ones may be
// shorter or empty.
struct Part {
  size_t begin, size;
};
Part part_of(size_t num_bytes, int size, int rank) {
  const auto ranks = static_cast<size_t>(size);
  const size_t unit = round_up((num_bytes + ranks - 1) / ranks, kAlignment);
  const size_t begin = std::min(num_bytes, unit * static_cast<size_t>(rank));
  return {begin, std::min(unit, num_bytes - begin)};
}

void reduce_bytes(std::span<void* const> outs, std::span<const void* const> inputs,
                  size_t num_bytes, const Reduction& reduction) {
  if (inputs.size() == 1) {
    for (void* const out : outs) {
      copy_bytes(static_cast<std::byte*>(out), static_cast<const std::byte*>(inputs[0]), num_bytes);
    }
    return;
  }
  const auto count = static_cast<int64_t>(num_bytes / c10::elementSize(reduction.dtype));
  reduce_in_rank_order(outs, inputs, count, reduction.dtype, reduction.operation);
}

bool takes_result(const Exchange& exchange, int root) {
  return root == kEveryRank || root == exchange.rank();
}

void all_reduce_in_note(Exchange& exchange, Bytes data, const Reduction& reduction, int root) {
  copy_bytes(reinterpret_cast<std::byte*>(exchange.note().data()), data.data(), data.size());
  exchange.meet();
  if (!takes_result(exchange, root)) return;
  Small<const void*> inputs;
  for (int rank = 0; rank < exchange.size(); ++rank)
    inputs.push_back(exchange.note_of(rank).data());
  void* out = data.data();
  reduce_bytes({&out, 1}, inputs, data.size(), reduction);
}

// Every rank reduces all of it, from slots and from operands in place (operands[r] not null). If
// any operand is in place, the result waits in the slot for a meet, because a peer may still read
// `data`.
void all_reduce_flat(Exchange& exchange, std::span<std::byte* const> operands, Bytes data,
                     const Reduction& reduction, int root) {
  bool all_staged = true;
  Small<const void*> inputs;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    all_staged &= operands[rank] == nullptr;
    inputs.push_back(operands[rank] != nullptr ? operands[rank] : exchange.posted(rank));
  }
  if (all_staged && !takes_result(exchange, root)) return;
  std::byte* const result = all_staged ? data.data() : exchange.mine();
  void* out = result;
  reduce_bytes({&out, 1}, inputs, data.size(), reduction);
  if (all_staged) return;
  exchange.meet();
  if (takes_result(exchange, root)) copy_bytes(data.data(), result, data.size());
}

// All operands are symmetric. Rank i reads part i of each and writes the result over it, so no rank
// writes what another reads. After the closing meet, all parts are complete.
void all_reduce_in_place(Exchange& exchange, std::span<std::byte* const> operands, size_t num_bytes,
                         const Reduction& reduction, int root) {
  const Part part = part_of(num_bytes, exchange.size(), exchange.rank());
  Small<const void*> inputs;
  Small<void*> outs;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    inputs.push_back(operands[rank] + part.begin);
    if (root == kEveryRank || root == rank) outs.push_back(operands[rank] + part.begin);
  }
  reduce_bytes(outs, inputs, part.size, reduction);
  exchange.meet();
}

// Some operands are ordinary. One meet serves two chunks: it publishes the sums of chunk k and the
// terms of chunk k + 1. Each slot has one room per rank. Rank 1 of 3 posts:
//
//   | room 0: its part 0 of k + 1 | room 1: the sum of part 1 of k | room 2: its part 2 of k + 1 |
//
//   stage 0 | meet | reduce 0, stage 1 | meet | copy 0 out, reduce 1, stage 2 | meet | copy 1 out
//
// Rank i reads only part i of the others' operands. So a rank may copy the sums of chunk k into its
// own operand after the meet that publishes them, even if peers use the operand in place.
class StagedAllReduce {
 public:
  StagedAllReduce(Exchange& exchange, Bytes data, const Reduction& reduction, int root)
      : exchange_(exchange),
        data_(data),
        reduction_(reduction),
        root_(root),
        room_(exchange.options().slot_bytes / exchange.size() / kAlignment * kAlignment),
        chunk_bytes_(room_ * exchange.size()) {}

  // Copies the other ranks' parts of chunk k into the slot that the next meet() posts.
  void stage(size_t k) const {
    for (int rank = 0; rank < exchange_.size(); ++rank) {
      if (rank == exchange_.rank()) continue;
      const Part part = part_of(chunk(k), exchange_.size(), rank);
      copy_bytes(exchange_.mine() + rank * room_, data_.data() + k * chunk_bytes_ + part.begin,
                 part.size);
    }
  }
  // Call after the meet that posted chunk 0. operands[r] is null when rank r stages.
  void run(std::span<std::byte* const> operands) const {
    const bool stages = operands[exchange_.rank()] == nullptr;
    const size_t count = num_chunks(data_.size(), chunk_bytes_);
    for (size_t k = 0; k < count; ++k) {
      reduce(k, operands);
      if (stages && k + 1 < count) stage(k + 1);
      exchange_.meet();
      if (takes_result(exchange_, root_)) copy_out(k);
    }
  }

 private:
  size_t own_room() const { return exchange_.rank() * room_; }
  size_t chunk(size_t k) const { return chunk_at(data_.size(), k * chunk_bytes_, chunk_bytes_); }

  void reduce(size_t k, std::span<std::byte* const> operands) const {
    const Part part = part_of(chunk(k), exchange_.size(), exchange_.rank());
    const size_t offset = k * chunk_bytes_ + part.begin;
    Small<const void*> inputs;
    for (int rank = 0; rank < exchange_.size(); ++rank) {
      const bool is_own = rank == exchange_.rank();
      inputs.push_back(is_own                      ? data_.data() + offset
                       : operands[rank] != nullptr ? operands[rank] + offset
                                                   : exchange_.posted(rank) + own_room());
    }
    Small<void*> outs;
    // Nobody but the root needs the root's part.
    if (root_ != exchange_.rank()) outs.push_back(exchange_.mine() + own_room());
    if (takes_result(exchange_, root_)) outs.push_back(data_.data() + offset);
    reduce_bytes(outs, inputs, part.size, reduction_);
  }
  void copy_out(size_t k) const {
    for (int rank = 0; rank < exchange_.size(); ++rank) {
      if (rank == exchange_.rank()) continue;
      const Part part = part_of(chunk(k), exchange_.size(), rank);
      copy_bytes(data_.data() + k * chunk_bytes_ + part.begin,
                 exchange_.posted(rank) + rank * room_, part.size);
    }
  }

  Exchange& exchange_;
  Bytes data_;
  Reduction reduction_;
  int root_;
  size_t room_;         // bytes of a room
  size_t chunk_bytes_;  // of all rooms together
};

// All of a rank's inputs travel in its note.
void reduce_scatter_in_note(Exchange& exchange, Bytes output, std::span<const ConstBytes> inputs,
                            const Reduction& reduction) {
  auto* mine = reinterpret_cast<std::byte*>(exchange.note().data());
  size_t own_begin = 0;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    if (rank < exchange.rank()) own_begin += inputs[rank].size();
    copy_bytes(mine, inputs[rank].data(), inputs[rank].size());
    mine += inputs[rank].size();
  }
  exchange.meet();
  Small<const void*> sources;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    sources.push_back(reinterpret_cast<const std::byte*>(exchange.note_of(rank).data()) +
                      own_begin);
  }
  void* out = output.data();
  reduce_bytes({&out, 1}, sources, output.size(), reduction);
}

// A rank's post about the blocks it exchanges with one other rank.
struct Entry {
  uint64_t place = Heap::kOrdinary;  // of the block that it sends there
  uint64_t size = 0;                 // of the same block
  uint64_t expected = 0;             // size of the block that it expects from there
};

// The layout of a slot in operations with one block per rank. The first meet posts the entries, and
// every meet posts the shares:
//
//   | entry for rank 0 | ... | entry for p - 1 |  | share for rank 0 | ... | share for p - 1 |
class Table {
 public:
  explicit Table(Exchange& exchange)
      : exchange_(exchange),
        head_(round_up(exchange.size() * sizeof(Entry), kAlignment)),
        share_((exchange.options().slot_bytes - head_) / exchange.size() / kAlignment *
               kAlignment) {}
  size_t share() const { return share_; }
  Entry& mine(int rank) const { return reinterpret_cast<Entry*>(exchange_.mine())[rank]; }
  Entry of(int poster, int rank) const {
    const Entry& posted = reinterpret_cast<const Entry*>(exchange_.posted(poster))[rank];
    return {read_once(posted.place), read_once(posted.size), read_once(posted.expected)};
  }
  std::byte* space_for(int rank) const { return exchange_.mine() + head_ + rank * share_; }
  const std::byte* posted_by(int poster) const {
    return exchange_.posted(poster) + head_ + exchange_.rank() * share_;
  }

 private:
  Exchange& exchange_;
  size_t head_;
  size_t share_;
};

// The place that this rank posts for its own block. kOrdinary when the block is ordinary or too
// small to use in place, or when zero_copy is off. A block that peers use in place is lent to them.
uint64_t place_of(const Shared& shared, ConstBytes block) {
  if (!shared.zero_copy || block.size() <= kCopyBytes) return Heap::kOrdinary;
  const uint64_t place = shared.heap.place_of(block.data(), block.size());
  if (place != Heap::kOrdinary) shared.exchange.lend();
  return place;
}

// The checked address of a block that `rank` has posted. Null when the block is staged.
std::byte* operand_at(const Shared& shared, int rank, uint64_t place, size_t num_bytes,
                      size_t alignment = 1) {
  if (place == Heap::kOrdinary) return nullptr;
  return span_of_peer(shared.exchange, shared.heap, {rank, place, num_bytes, alignment}).data();
}

}  // namespace

size_t least_slot_bytes(int size) {
  const auto ranks = static_cast<size_t>(size);
  return round_up(ranks * sizeof(Entry), kAlignment) + ranks * kAlignment;
}

void all_reduce(const Shared& shared, Bytes data, const Reduction& reduction, int root) {
  Exchange& exchange = shared.exchange;
  if (data.size() <= sizeof(Exchange::Note))
    return all_reduce_in_note(exchange, data, reduction, root);
  const bool is_flat = data.size() <= std::min(kFlatBytes, exchange.options().slot_bytes);
  const StagedAllReduce staged(exchange, data, reduction, root);
  const uint64_t place = place_of(shared, data);
  exchange.note()[0] = place;
  if (place == Heap::kOrdinary && is_flat) {
    copy_bytes(exchange.mine(), data.data(), data.size());
  } else if (place == Heap::kOrdinary) {
    staged.stage(0);
  }
  exchange.meet();
  Small<std::byte*> operands;  // null: staged
  const size_t alignment = c10::elementSize(reduction.dtype);
  for (int rank = 0; rank < exchange.size(); ++rank) {
    if (rank == exchange.rank()) {
      operands.push_back(place == Heap::kOrdinary ? nullptr : data.data());
      continue;
    }
    const uint64_t other = read_once(exchange.note_of(rank)[0]);
    operands.push_back(operand_at(shared, rank, other, data.size(), alignment));
  }
  if (std::ranges::find(operands, nullptr) == operands.end()) {
    all_reduce_in_place(exchange, operands, data.size(), reduction, root);
  } else if (is_flat) {
    all_reduce_flat(exchange, operands, data, reduction, root);
  } else {
    staged.run(operands);
  }
}

void reduce_scatter(const Shared& shared, Bytes output, std::span<const ConstBytes> inputs,
                    const Reduction& reduction) {
  Exchange& exchange = shared.exchange;
  size_t total = 0;  // the same on all ranks, since the call's signature has the blocks' sizes
  for (const ConstBytes input : inputs) total += input.size();
  if (total <= sizeof(Exchange::Note))
    return reduce_scatter_in_note(exchange, output, inputs, reduction);
  const Table table(exchange);
  const int self = exchange.rank();
  size_t longest = 0;
  uint64_t num_symmetric = 0;
  uint64_t num_staged = 0;
  Small<uint64_t> places;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    longest = std::max(longest, inputs[rank].size());
    const uint64_t place = place_of(shared, inputs[rank]);
    table.mine(rank).place = place;
    places.push_back(place);
    if (rank == self || inputs[rank].empty()) continue;
    ++(place == Heap::kOrdinary ? num_staged : num_symmetric);
  }
  // All ranks read the note and therefore make the same meets. Only one rank reads an entry.
  exchange.note()[0] = num_symmetric;
  exchange.note()[1] = num_staged;
  const auto stage = [&](size_t offset) {
    for (int rank = 0; rank < exchange.size(); ++rank) {
      if (rank == self || places[rank] != Heap::kOrdinary) continue;
      copy_bytes(table.space_for(rank), inputs[rank].data() + offset,
                 chunk_at(inputs[rank].size(), offset, table.share()));
    }
  };
  stage(0);
  exchange.meet();

  bool all_symmetric = true;
  bool any_symmetric = false;
  Small<const std::byte*> operands;  // null: staged
  for (int rank = 0; rank < exchange.size(); ++rank) {
    any_symmetric |= read_once(exchange.note_of(rank)[0]) > 0;
    const bool stages_none = read_once(exchange.note_of(rank)[1]) == 0;
    all_symmetric &= stages_none;
    if (rank == self) {
      operands.push_back(inputs[self].data());
      continue;
    }
    operands.push_back(operand_at(shared, rank, table.of(rank, self).place, inputs[self].size(),
                                  c10::elementSize(reduction.dtype)));
    if (stages_none && operands.back() == nullptr && !inputs[self].empty()) {
      exchange.fail(concat(exchange.title_of(rank), " says that it stages nothing, and stages ",
                           inputs[self].size(), " bytes; its memory or program is damaged"));
    }
  }
  const size_t step = all_symmetric ? std::max<size_t>(longest, 1) : table.share();
  for (size_t offset = 0;;) {
    Small<const void*> sources;
    for (int rank = 0; rank < exchange.size(); ++rank) {
      sources.push_back(operands[rank] != nullptr ? operands[rank] + offset
                                                  : table.posted_by(rank));
    }
    void* out = output.data() + offset;
    reduce_bytes({&out, 1}, sources, chunk_at(output.size(), offset, step), reduction);
    offset += step;
    if (offset >= longest) break;
    stage(offset);
    exchange.meet();
  }
  if (any_symmetric) exchange.meet();
}

void share(const Shared& shared, std::span<const Bytes> outputs, ConstBytes input, bool confirm) {
  Exchange& exchange = shared.exchange;
  constexpr size_t kInlineBytes = sizeof(Exchange::Note) - 2 * sizeof(uint64_t);
  const size_t slot = exchange.options().slot_bytes;
  Exchange::Note& note = exchange.note();
  note[0] = place_of(shared, input);
  note[1] = input.size();
  const bool stages = note[0] == Heap::kOrdinary;
  if (input.size() <= kInlineBytes) {
    copy_bytes(reinterpret_cast<std::byte*>(&note[2]), input.data(), input.size());
  } else if (stages) {
    copy_bytes(exchange.mine(), input.data(), chunk_at(input.size(), 0, slot));
  }
  exchange.meet();

  size_t longest = 0;  // of the staged inputs; decides how many meets follow
  bool any_symmetric = false;
  std::string mismatch;
  Small<bool> is_staged;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    const Exchange::Note& posted = exchange.note_of(rank);
    const uint64_t place = read_once(posted[0]);
    const uint64_t size = read_once(posted[1]);
    is_staged.push_back(place == Heap::kOrdinary);
    any_symmetric |= !is_staged.back();
    if (is_staged.back()) longest = std::max<size_t>(longest, size);
    if (outputs.empty()) continue;
    const Bytes output = outputs[rank];
    if (output.size() != size) {
      mismatch = concat("rank ", rank, " sends ", size, " bytes to rank ", exchange.rank(),
                        ", which expects ", output.size());
      continue;
    }
    const std::byte* const operand = operand_at(shared, rank, place, size);
    copy_bytes(output.data(),
               operand != nullptr     ? operand
               : size <= kInlineBytes ? reinterpret_cast<const std::byte*>(&posted[2])
                                      : exchange.posted(rank),
               operand != nullptr ? size : chunk_at(size, 0, slot));
  }
  if (!mismatch.empty()) exchange.fail(mismatch);
  for (size_t offset = slot; offset < longest; offset += slot) {
    if (stages)
      copy_bytes(exchange.mine(), input.data() + offset, chunk_at(input.size(), offset, slot));
    exchange.meet();
    for (int rank = 0; rank < exchange.size(); ++rank) {
      if (outputs.empty() || !is_staged[rank]) continue;
      copy_bytes(outputs[rank].data() + offset, exchange.posted(rank),
                 chunk_at(outputs[rank].size(), offset, slot));
    }
  }
  if (any_symmetric || confirm) exchange.meet();
}

void all_to_all(const Shared& shared, std::span<const Bytes> outputs,
                std::span<const ConstBytes> inputs) {
  Exchange& exchange = shared.exchange;
  const Table table(exchange);
  const int size = exchange.size();
  const int self = exchange.rank();
  Small<bool> is_staged;
  for (int rank = 0; rank < size; ++rank) {
    const uint64_t place = rank == self ? Heap::kOrdinary : place_of(shared, inputs[rank]);
    table.mine(rank) = {place, inputs[rank].size(), outputs[rank].size()};
    is_staged.push_back(rank != self && place == Heap::kOrdinary);
  }
  const auto stage = [&](size_t offset) {
    for (int rank = 0; rank < size; ++rank) {
      if (!is_staged[rank]) continue;
      copy_bytes(table.space_for(rank), inputs[rank].data() + offset,
                 chunk_at(inputs[rank].size(), offset, table.share()));
    }
  };
  stage(0);
  exchange.meet();

  size_t longest = 0;  // of all ranks' staged blocks; decides how many meets follow
  bool any_symmetric = false;
  Small<uint64_t> places;  // of the blocks that come here
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      Entry entry = table.of(from, to);
      uint64_t expected = table.of(to, from).expected;
      // A damaged peer may have written here, so this rank takes its own sizes from the call.
      if (from == self) entry.size = inputs[to].size();
      if (to == self) expected = outputs[from].size();
      if (to == self) places.push_back(entry.place);
      if (entry.size != expected) {  // every rank sees the difference and fails
        exchange.fail(concat("rank ", from, " sends ", entry.size, " bytes to rank ", to,
                             ", which expects ", expected));
      }
      if (from == to) continue;
      any_symmetric |= entry.place != Heap::kOrdinary;
      if (entry.place == Heap::kOrdinary) longest = std::max<size_t>(longest, entry.size);
    }
  }
  Small<bool> comes_staged;
  for (int from = 0; from < size; ++from) {
    comes_staged.push_back(from != self && places[from] == Heap::kOrdinary);
    if (from == self) {
      copy_bytes(outputs[self].data(), inputs[self].data(), outputs[self].size());
    } else if (!comes_staged[from]) {
      copy_bytes(outputs[from].data(), operand_at(shared, from, places[from], outputs[from].size()),
                 outputs[from].size());
    }
  }
  for (size_t offset = 0;;) {
    for (int from = 0; from < size; ++from) {
      if (!comes_staged[from]) continue;
      copy_bytes(outputs[from].data() + offset, table.posted_by(from),
                 chunk_at(outputs[from].size(), offset, table.share()));
    }
    offset += table.share();
    if (offset >= longest) break;
    stage(offset);
    exchange.meet();
  }
  if (any_symmetric) exchange.meet();
}

}  // namespace trireme::comm::collectives
