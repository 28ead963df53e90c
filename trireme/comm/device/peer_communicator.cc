#include "trireme/comm/device/peer_communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/error.h"
#include "trireme/comm/device/ordered_sum.h"
#include "trireme/comm/device_group.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// Each rank has two slots of device memory that its peers can read. A chunk waits until all have
// read the slot the last time (kDone), fills it, records kReady and meets the others on the host;
// then the streams wait for each other's events. The meeting is needed because a wait for an event
// means nothing before the event is recorded. Slots alternate, so one is filled while the other is
// still read. The host waits for the device only before memory is replaced.

namespace {

using Kind = Collective::Kind;

constexpr int kReady = 0;   // this rank's slot holds its data
constexpr int kSummed = 1;  // and then its part of the sums
constexpr int kDone = 2;    // this rank has read its peers' slots
// Growing is a call of all ranks that waits for the device, so slots begin larger than most calls.
constexpr int64_t kLeastSlotBytes = 1 << 20;

// A call as the ranks tell it each other.
constexpr size_t kNameWords = 3;
constexpr size_t kCallWords = kNameWords + 5;
using CallWords = std::array<int64_t, kCallWords>;

CallWords words_of(const Call& call) {
  CallWords words{};
  std::strncpy(reinterpret_cast<char*>(words.data()), call.operation,
               kNameWords * sizeof(int64_t) - 1);
  words[kNameWords] = call.dtype;
  words[kNameWords + 1] = call.reduce_op;
  words[kNameWords + 2] = call.root;
  words[kNameWords + 3] = call.elements;
  words[kNameWords + 4] = static_cast<int64_t>(call.block_sizes);
  return words;
}

std::string text_of(const CallWords& words) {
  const std::string name(reinterpret_cast<const char*>(words.data()));
  return to_string(Call{.operation = name.c_str(),
                        .dtype = static_cast<int>(words[kNameWords]),
                        .reduce_op = static_cast<int>(words[kNameWords + 1]),
                        .root = static_cast<int>(words[kNameWords + 2]),
                        .elements = words[kNameWords + 3],
                        .block_sizes = static_cast<uint64_t>(words[kNameWords + 4])});
}

int64_t bytes_in(const at::Tensor& block) {
  return block.defined() ? static_cast<int64_t>(block.nbytes()) : 0;
}

at::Tensor as_bytes(const at::Tensor& flat) { return flat.defined() ? flat.view(at::kByte) : flat; }

std::vector<at::Tensor> as_bytes(const std::vector<at::Tensor>& flat) {
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& each : flat) bytes.push_back(as_bytes(each));
  return bytes;
}

struct Range {
  int64_t begin;
  int64_t length;
};
// The part of `range` in [begin, begin + length).
Range overlap(Range range, int64_t begin, int64_t length) {
  const int64_t first = std::max(range.begin, begin);
  const int64_t last = std::min(range.begin + range.length, begin + length);
  return {first, std::max<int64_t>(last - first, 0)};
}

// Copies what bytes from `begin` on of the blocks, one after another, fit into `slot`.
void copy_stream(const at::Tensor& slot, const std::vector<at::Tensor>& blocks, int64_t begin) {
  int64_t offset = 0;
  for (const at::Tensor& block : blocks) {
    const Range part = overlap({offset, bytes_in(block)}, begin, slot.numel());
    if (part.length > 0) {
      slot.narrow(0, part.begin - begin, part.length)
          .copy_(block.narrow(0, part.begin - offset, part.length));
    }
    offset += bytes_in(block);
  }
}

}  // namespace

PeerCommunicator::PeerCommunicator(std::unique_ptr<Communicator> host,
                                   std::shared_ptr<const PeerDevice> device, PeerOptions options)
    : RecordedCommunicator(device->device().type()),
      host_(std::move(host)),
      device_(std::move(device)),
      options_(std::move(options)),
      abort_{std::make_shared<AbortSwitch>(
          [this] { host_->abort("group " + options_.name + " was aborted"); })},
      progress_(abort_.abort) {
  record_in(options_.recorder);
}

void PeerCommunicator::check_reduction(const Call& call) const {
  check_device_reducible(static_cast<c10::ScalarType>(call.dtype),
                         static_cast<ReduceOp>(call.reduce_op));
}

WorkPtr PeerCommunicator::start(Collective&& call, const Recorder::Entry& entry) {
  if (call.is_message()) {
    const auto end = [entry](bool succeeded) { entry.finish(succeeded); };
    return run_staged(*host_, std::move(call), end);
  }
  const at::Device device = device_->device();
  if (!call.options.background) {
    return run_in_order(progress_, std::move(call), entry, [this, device](const Collective& call) {
      const c10::DeviceGuard guard(device);
      carry_out(call);
    });
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  // A stream of its own: on the caller's, the call would wait behind computation that was launched
  // after it.
  if (!background_) background_ = device_->new_stream();
  // Its data may still be under way on the caller's stream.
  const auto given = std::make_shared<c10::Event>(device.type());
  given->record(guard.getStream(device));
  return run_in_order(progress_, std::move(call), entry,
                      [this, stream = *background_, given, device](const Collective& call) {
                        const c10::DeviceGuard on_device(device);
                        const c10::StreamGuard on_stream(stream);
                        given->block(stream);
                        carry_out(call);
                        // wait() of its work orders no stream, so the device must be done.
                        stream.synchronize();
                      });
}

// Meetings and chunks.

std::vector<std::vector<int64_t>> PeerCommunicator::meet(const Call& call,
                                                         const std::vector<int64_t>& sizes,
                                                         const Options& options) {
  const CallWords words = words_of(call);
  std::vector<int64_t> mine(words.begin(), words.end());
  mine.insert(mine.end(), sizes.begin(), sizes.end());
  // Rows of one length, as not every call has sizes.
  mine.resize(kCallWords + size());
  std::vector<std::vector<int64_t>> all(size(), mine);
  const auto view = [](std::vector<int64_t>& row) {
    return at::from_blob(row.data(), {static_cast<int64_t>(row.size())}, at::kLong);
  };
  Tensors rows;
  for (auto& row : all) rows.push_back(view(row));
  host_->all_gather(rows, view(mine), {.timeout = options.timeout})->wait();
  std::vector<CallWords> calls(size());
  for (int peer = 0; peer < size(); ++peer) {
    std::copy_n(all[peer].begin(), kCallWords, calls[peer].begin());
    all[peer].erase(all[peer].begin(), all[peer].begin() + kCallWords);
  }
  for (int peer = 1; peer < size(); ++peer) {
    if (calls[peer] == calls[0]) continue;
    const std::string reason =
        concat("call #", sequence_, " of group ", name(), ": rank 0 calls ", text_of(calls[0]),
               " and rank ", peer, " calls ", text_of(calls[peer]));
    host_->abort(reason);
    throw CommError(reason);
  }
  return all;
}

void PeerCommunicator::meet_again(const Options& options) {
  host_->barrier({.timeout = options.timeout})->wait();
}

void PeerCommunicator::make_room(int64_t num_bytes) {
  // Powers of two, so that it grows seldom.
  const auto wanted = static_cast<int64_t>(std::bit_ceil(
      static_cast<uint64_t>(std::clamp(num_bytes, kLeastSlotBytes, options_.most_slot_bytes))));
  if (wanted <= slot_bytes_) return;
  if (memory_ != nullptr) {  // which nobody may still read
    for (const int slot : {0, 1}) {
      for (int peer = 0; peer < size(); ++peer) memory_->wait(peer, 3 * slot + kDone);
    }
    const at::Device device = device_->device();
    // By the host, because libtorch gets the memory back.
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
    // All ranks are past their last read, so libtorch may reuse the memory; otherwise it is kept.
    memory_->set_unread();
  }
  memory_ = device_->share(*host_, 2 * wanted);
  slot_bytes_ = wanted;
}

at::Tensor PeerCommunicator::slot_of(int rank) const {
  return memory_->bytes_of(rank).narrow(0, static_cast<int64_t>(chunk_ % 2) * slot_bytes_,
                                        slot_bytes_);
}

template <typename Fill>
void PeerCommunicator::begin_chunk(const Options& options, Fill fill) {
  for (int peer = 0; peer < size(); ++peer) memory_->wait(peer, event_of(kDone));
  fill(slot_of(rank()));
  memory_->record(event_of(kReady));
  meet_again(options);
}

void PeerCommunicator::end_chunk() {
  memory_->record(event_of(kDone));
  ++chunk_;
}

void PeerCommunicator::move(const Call& call, const Tensors& to, const Tensors& from,
                            bool is_common, const Options& options) {
  std::vector<int64_t> lengths;
  for (const at::Tensor& block : to) lengths.push_back(bytes_in(block));
  const auto all = meet(call, lengths, options);
  Tensors sent = to;
  // One block goes to all, so it is staged once.
  if (is_common) sent.resize(1);
  std::vector<Range> mine(size());  // of the bytes that each rank sends, those for this one
  int64_t longest = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (all[peer][rank()] != bytes_in(from[peer])) {
      const std::string reason = concat(
          call.operation, " #", sequence_, " of group ", name(), ": rank ", peer, " sends ",
          all[peer][rank()], " bytes to rank ", rank(), ", which expects ", bytes_in(from[peer]));
      host_->abort(reason);
      throw CommError(reason);
    }
    int64_t total = 0;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) mine[peer] = {is_common ? 0 : total, all[peer][other]};
      total = is_common ? std::max(total, all[peer][other]) : total + all[peer][other];
    }
    longest = std::max(longest, total);
  }
  // A rank's own block needs no slot, and a group of one no chunk.
  if (bytes_in(from[rank()]) > 0) from[rank()].copy_(to[rank()]);
  if (size() == 1 || longest == 0) return;
  make_room(longest);
  for (int64_t begin = 0; begin < longest; begin += slot_bytes_) {
    begin_chunk(options, [&](const at::Tensor& slot) { copy_stream(slot, sent, begin); });
    for (int peer = 0; peer < size(); ++peer) {
      const Range part = overlap(mine[peer], begin, slot_bytes_);
      if (peer == rank() || part.length == 0) continue;
      memory_->wait(peer, event_of(kReady));
      from[peer]
          .narrow(0, part.begin - mine[peer].begin, part.length)
          .copy_(slot_of(peer).narrow(0, part.begin - begin, part.length));
    }
    end_chunk();
  }
}

void PeerCommunicator::reduce_flat(const Call& call, const at::Tensor& flat, int root,
                                   const Options& options) {
  meet(call, {}, options);
  if (flat.numel() == 0 || size() == 1) return;
  const auto num_bytes = static_cast<int64_t>(flat.nbytes());
  make_room(num_bytes);
  // Two steps read each element twice per rank instead of once for each rank.
  const bool in_two_steps = root < 0 && size() > 2 && num_bytes > kSmallBytes;
  const int64_t most = slot_bytes_ / static_cast<int64_t>(flat.itemsize());
  for (int64_t begin = 0; begin < flat.numel(); begin += most) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(most, flat.numel() - begin));
    const auto view = [&](const at::Tensor& slot) {
      return slot.narrow(0, 0, static_cast<int64_t>(piece.nbytes())).view(piece.scalar_type());
    };
    begin_chunk(options, [&](const at::Tensor& slot) { view(slot).copy_(piece); });
    if (root < 0 || root == rank()) {
      Tensors terms;
      for (int peer = 0; peer < size(); ++peer) {
        memory_->wait(peer, event_of(kReady));
        terms.push_back(view(slot_of(peer)));
      }
      if (!in_two_steps) {
        reduce_tensors(piece, terms, options.operation);
      } else {
        Tensors parts;
        for (const at::Tensor& term : terms) {
          parts.push_back(view_even_blocks(term, size())[rank()]);
        }
        reduce_tensors(parts[rank()], parts, options.operation);
        memory_->record(event_of(kSummed));
        meet_again(options);
        // Only now every rank has recorded kSummed.
        const Tensors results = view_even_blocks(piece, size());
        for (int peer = 0; peer < size(); ++peer) {
          memory_->wait(peer, event_of(kSummed));
          results[peer].copy_(view_even_blocks(terms[peer], size())[peer]);
        }
      }
    }
    end_chunk();
  }
}

void PeerCommunicator::reduce_scatter_flat(const Call& call, const at::Tensor& flat,
                                           const Tensors& inputs, const Options& options) {
  const Tensors blocks = as_bytes(inputs);
  meet(call, {}, options);
  int64_t total = 0, begin_of_mine = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) begin_of_mine = total;
    total += bytes_in(blocks[peer]);
  }
  if (size() == 1) flat.copy_(inputs[0]);
  if (size() > 1 && total > 0) make_room(total);
  const auto item = static_cast<int64_t>(flat.itemsize());
  for (int64_t begin = 0; size() > 1 && begin < total; begin += slot_bytes_) {
    begin_chunk(options, [&](const at::Tensor& slot) { copy_stream(slot, blocks, begin); });
    const Range part = overlap({begin_of_mine, bytes_in(blocks[rank()])}, begin, slot_bytes_);
    if (part.length > 0) {
      Tensors terms;
      for (int peer = 0; peer < size(); ++peer) {
        memory_->wait(peer, event_of(kReady));
        terms.push_back(
            slot_of(peer).narrow(0, part.begin - begin, part.length).view(flat.scalar_type()));
      }
      reduce_tensors(flat.narrow(0, (part.begin - begin_of_mine) / item, part.length / item), terms,
                     options.operation);
    }
    end_chunk();
  }
}

void PeerCommunicator::carry_out(const Collective& call) {
  ++sequence_;
  const FlatCollective operands(call);
  const at::Tensor flat = operands.data.flat();
  const Call& compared = call.compared;
  const Options& options = call.options;
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce: reduce_flat(compared, flat, call.peer, options); break;
    case Kind::kReduceScatter:
      reduce_scatter_flat(compared, flat, operands.inputs.flat(), options);
      break;
    case Kind::kBroadcast:
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kGather:
    case Kind::kScatter: {
      const Moves moves = moves_of(call, operands);
      const bool is_common = call.kind == Kind::kBroadcast || call.kind == Kind::kAllGather;
      move(compared, as_bytes(moves.to), as_bytes(moves.from), is_common, options);
      break;
    }
    case Kind::kBarrier: meet(compared, {}, options); break;
    case Kind::kSend:
    case Kind::kRecv: break;  // start()
  }
  operands.commit(call, rank());
}

at::Tensor PeerCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(device_->device()));
}

std::unique_ptr<Communicator> PeerCommunicator::split(int color, int key, const std::string& name) {
  // Calls in the background use host_ too.
  progress_.drain();
  const std::vector<int> members = members_of_split(*host_, color, key);
  // The new group meets on hosts of its own: it must not wait for calls of this one.
  auto host = host_->split(color, key, name);
  if (host == nullptr) return nullptr;
  PeerOptions options = options_;
  options.name = name;
  options.recorder = recorder_.split(name, members);
  return std::make_unique<PeerCommunicator>(std::move(host), device_, options);
}

}  // namespace trireme::comm
