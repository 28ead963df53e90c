#include "trireme/comm/staged.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm::staged {
namespace {

// Below this every rank reduces all of a message: one exchange less outweighs the extra arithmetic.
constexpr size_t kFlatBytes = 16 << 10;
constexpr size_t kAlignment = 64;  // divides every dtype's size, and keeps parts off shared lines

size_t chunk_at(size_t total, size_t offset, size_t limit) {
  return offset >= total ? 0 : std::min(limit, total - offset);
}

void copy_bytes(std::byte* to, const std::byte* from, size_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, num_bytes);
}

// Reduces bytes [begin, begin + num_bytes) of what all ranks posted.
void reduce_posted(const Exchange& exchange, std::byte* out, size_t begin, size_t num_bytes,
                   const Reduction& reduction) {
  std::vector<const void*> inputs;
  for (int rank = 0; rank < exchange.size(); ++rank)
    inputs.push_back(exchange.posted(rank) + begin);
  const auto count = static_cast<int64_t>(num_bytes / c10::elementSize(reduction.dtype));
  reduce_in_rank_order(out, inputs, count, reduction.dtype, reduction.operation);
}

// Rank `rank`'s part of a chunk: aligned pieces of equal size, the last ones shorter or empty.
std::pair<size_t, size_t> part_of(size_t num_bytes, int size, int rank) {
  const size_t ranks = static_cast<size_t>(size);
  const size_t unit = (num_bytes / ranks + kAlignment) / kAlignment * kAlignment;
  const size_t begin = std::min(num_bytes, unit * static_cast<size_t>(rank));
  return {begin, std::min(unit, num_bytes - begin)};
}

// A slot's bytes when `size` destinations share it.
size_t share_of_slot(const Exchange& exchange) {
  const size_t share = exchange.options().slot_bytes / static_cast<size_t>(exchange.size());
  return share / kAlignment * kAlignment;
}

}  // namespace

void all_reduce(Exchange& exchange, Bytes data, const Reduction& reduction) {
  const size_t slot = exchange.options().slot_bytes;
  size_t offset = 0;
  do {
    const size_t chunk = chunk_at(data.size(), offset, slot);
    copy_bytes(exchange.mine(), data.data() + offset, chunk);
    exchange.meet();
    if (data.size() <= kFlatBytes) {
      reduce_posted(exchange, data.data() + offset, 0, chunk, reduction);
    } else {
      const auto [begin, size] = part_of(chunk, exchange.size(), exchange.rank());
      // Posting offsets are those of the chunk, so that the copy out needs no table.
      reduce_posted(exchange, exchange.mine() + begin, begin, size, reduction);
      exchange.meet();
      for (int rank = 0; rank < exchange.size(); ++rank) {
        const auto [from, part] = part_of(chunk, exchange.size(), rank);
        copy_bytes(data.data() + offset + from, exchange.posted(rank) + from, part);
      }
    }
    offset += chunk;
  } while (offset < data.size());
}

void reduce(Exchange& exchange, Bytes data, int root, const Reduction& reduction) {
  size_t offset = 0;
  do {
    const size_t chunk = chunk_at(data.size(), offset, exchange.options().slot_bytes);
    copy_bytes(exchange.mine(), data.data() + offset, chunk);
    exchange.meet();
    if (exchange.rank() == root) {
      reduce_posted(exchange, data.data() + offset, 0, chunk, reduction);
    }
    offset += chunk;
  } while (offset < data.size());
}

void broadcast(Exchange& exchange, Bytes data, int root) {
  size_t offset = 0;
  do {
    const size_t chunk = chunk_at(data.size(), offset, exchange.options().slot_bytes);
    if (exchange.rank() == root) copy_bytes(exchange.mine(), data.data() + offset, chunk);
    exchange.meet();
    if (exchange.rank() != root) copy_bytes(data.data() + offset, exchange.posted(root), chunk);
    offset += chunk;
  } while (offset < data.size());
}

void all_gather(Exchange& exchange, std::span<const Bytes> outputs, ConstBytes input) {
  const size_t slot = exchange.options().slot_bytes;
  size_t longest = 0;
  for (const Bytes& output : outputs) longest = std::max(longest, output.size());
  size_t offset = 0;
  do {
    copy_bytes(exchange.mine(), input.data() + offset, chunk_at(input.size(), offset, slot));
    exchange.meet();
    for (int rank = 0; rank < exchange.size(); ++rank) {
      copy_bytes(outputs[rank].data() + offset, exchange.posted(rank),
                 chunk_at(outputs[rank].size(), offset, slot));
    }
    offset += slot;
  } while (offset < longest);
}

void reduce_scatter(Exchange& exchange, Bytes output, std::span<const ConstBytes> inputs,
                    const Reduction& reduction) {
  const size_t share = share_of_slot(exchange);
  size_t longest = 0;
  for (const ConstBytes& input : inputs) longest = std::max(longest, input.size());
  size_t offset = 0;
  do {
    for (int rank = 0; rank < exchange.size(); ++rank) {
      copy_bytes(exchange.mine() + rank * share, inputs[rank].data() + offset,
                 chunk_at(inputs[rank].size(), offset, share));
    }
    exchange.meet();
    reduce_posted(exchange, output.data() + offset, exchange.rank() * share,
                  chunk_at(output.size(), offset, share), reduction);
    offset += share;
  } while (offset < longest);
}

void all_to_all(Exchange& exchange, std::span<const Bytes> outputs,
                std::span<const ConstBytes> inputs) {
  const int size = exchange.size();
  const size_t share = share_of_slot(exchange);
  // Who sends how much: a rank knows only its own row.
  auto* sizes = reinterpret_cast<uint64_t*>(exchange.mine());
  for (int rank = 0; rank < size; ++rank) sizes[rank] = inputs[rank].size();
  exchange.meet();
  size_t longest = 0;
  std::string mismatch;
  for (int from = 0; from < size; ++from) {
    const auto* row = reinterpret_cast<const uint64_t*>(exchange.posted(from));
    for (int to = 0; to < size; ++to) longest = std::max<size_t>(longest, row[to]);
    if (row[exchange.rank()] != outputs[from].size()) {
      mismatch = concat("rank ", from, " sends ", row[exchange.rank()], " bytes to rank ",
                        exchange.rank(), ", which expects ", outputs[from].size());
    }
  }
  if (!mismatch.empty()) exchange.fail(mismatch);
  for (size_t offset = 0; offset < longest; offset += share) {
    for (int to = 0; to < size; ++to) {
      copy_bytes(exchange.mine() + to * share, inputs[to].data() + offset,
                 chunk_at(inputs[to].size(), offset, share));
    }
    exchange.meet();
    for (int from = 0; from < size; ++from) {
      copy_bytes(outputs[from].data() + offset, exchange.posted(from) + exchange.rank() * share,
                 chunk_at(outputs[from].size(), offset, share));
    }
  }
}

}  // namespace trireme::comm::staged
