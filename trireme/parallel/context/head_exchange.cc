#include "trireme/parallel/context/head_exchange.h"

#include <ATen/ATen.h>

#include "trireme/parallel/context/head_rows.h"

namespace trireme::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

// The heads of a share in q, k and v, or in q alone.
std::vector<mesh::Range> heads_in(const Share& share, size_t num_tensors) {
  if (num_tensors == 1) return {share.queries};
  return {share.queries, share.kv, share.kv};
}
int64_t num_heads(const Share& share, size_t num_tensors) {
  return num_tensors == 1 ? share.queries.size : share.queries.size + 2 * share.kv.size;
}

// For each rank a block [B, tokens[r], heads[r], H]; for this one, whose block does not travel, an
// empty one. Peers read those to send in place.
Tensors blocks_for(const Route& route, const at::Tensor& like, const std::vector<int64_t>& tokens,
                   const std::vector<int64_t>& heads, bool is_sent) {
  const int64_t B = like.size(0), H = like.size(3);
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (int rank = 0; rank < route.group.size(); ++rank) {
    const bool is_own = rank == route.group.rank();
    sizes.push_back(is_own ? 0 : B * tokens[rank] * heads[rank] * H);
    total += sizes.back();
  }
  const bool is_symmetric = is_sent && route.options.symmetric && like.is_cpu();
  const at::Tensor memory = is_symmetric ? route.group.symmetric_empty({total}, like.scalar_type())
                                         : at::empty({total}, like.options());
  Tensors blocks = memory.split_with_sizes(sizes);
  for (int rank = 0; rank < route.group.size(); ++rank) {
    if (rank != route.group.rank())
      blocks[rank] = blocks[rank].view({B, tokens[rank], heads[rank], H});
  }
  return blocks;
}

// Calls use(tokens of whole, tokens of the rank's block) for each range of the rank.
template <typename Use>
void for_each_range(const SequenceSplit& split, int rank, const Use& use) {
  int64_t local = 0;
  for (const mesh::Range& range : split.ranges(rank)) {
    use(range, mesh::Range{local, range.size});
    local += range.size;
  }
}

}  // namespace

Route::Route(int64_t heads, int64_t kv_heads, const SequenceSplit& split, comm::Communicator& group,
             AllToAllOptions options)
    : heads(heads), kv_heads(kv_heads), split(split), group(group), options(options) {
  const int64_t copies = heads / kv_heads;
  for (int rank = 0; rank < group.size(); ++rank) {
    // Uneven: query heads need not be divisible by the number of ranks.
    const mesh::Range queries = mesh::split_range(heads, group.size(), rank);
    const int64_t first = queries.offset / copies;
    const int64_t last = (queries.offset + queries.size - 1) / copies;
    shares.push_back({queries, {first, last - first + 1}});
  }
}

int64_t Route::num_kv_heads_sent() const {
  int64_t sum = 0;
  for (const Share& share : shares) sum += share.kv.size;
  return sum;
}

at::Tensor tokens_of(const at::Tensor& x_BtNH, const mesh::Range& tokens) {
  return x_BtNH.narrow(1, tokens.offset, tokens.size);
}
at::Tensor heads_of(const at::Tensor& x_BtNH, const mesh::Range& heads) {
  return x_BtNH.narrow(2, heads.offset, heads.size);
}

at::Tensor to_heads(const Route& route, const Tensors& local) {
  const int self = route.group.rank(), p = route.group.size();
  std::vector<int64_t> tokens, own_tokens, heads, own_heads;
  for (int rank = 0; rank < p; ++rank) {
    own_tokens.push_back(route.split.num_tokens(self));
    tokens.push_back(route.split.num_tokens(rank));
    heads.push_back(num_heads(route.shares[rank], local.size()));
    own_heads.push_back(num_heads(route.mine(), local.size()));
  }
  // One message for q, k and v: three collectives would cost three latencies.
  const Tensors outgoing = blocks_for(route, local[0], own_tokens, heads, /*is_sent=*/true);
  const Tensors incoming = blocks_for(route, local[0], tokens, own_heads, /*is_sent=*/false);
  const at::Tensor whole =
      at::empty({local[0].size(0), route.split.length(), own_heads[self], local[0].size(3)},
                local[0].options());
  for (int rank = 0; rank < p; ++rank) {
    int64_t first = 0;
    const std::vector<mesh::Range> ranges = heads_in(route.shares[rank], local.size());
    for (size_t i = 0; i < local.size(); ++i) {
      const at::Tensor from = heads_of(local[i], ranges[i]);
      const mesh::Range to{first, ranges[i].size};
      first += to.size;
      if (rank != self) {
        copy_rows(heads_of(outgoing[rank], to), from);
        continue;
      }
      for_each_range(route.split, self, [&](const mesh::Range& of_whole, const mesh::Range& own) {
        copy_rows(tokens_of(heads_of(whole, to), of_whole), tokens_of(from, own));
      });
    }
  }
  route.group.all_to_all(incoming, outgoing)->wait();
  for (int rank = 0; rank < p; ++rank) {
    if (rank == self) continue;
    for_each_range(route.split, rank, [&](const mesh::Range& of_whole, const mesh::Range& block) {
      copy_rows(tokens_of(whole, of_whole), tokens_of(incoming[rank], block));
    });
  }
  return whole;
}

std::vector<HeadPiece> to_tokens(const Route& route, const Tensors& whole) {
  const int self = route.group.rank(), p = route.group.size();
  std::vector<int64_t> tokens, own_tokens, heads, own_heads;
  for (int rank = 0; rank < p; ++rank) {
    tokens.push_back(route.split.num_tokens(rank));
    own_tokens.push_back(route.split.num_tokens(self));
    heads.push_back(num_heads(route.shares[rank], whole.size()));
    own_heads.push_back(num_heads(route.mine(), whole.size()));
  }
  const Tensors outgoing = blocks_for(route, whole[0], tokens, own_heads, /*is_sent=*/true);
  const Tensors incoming = blocks_for(route, whole[0], own_tokens, heads, /*is_sent=*/false);
  for (int rank = 0; rank < p; ++rank) {
    if (rank == self) continue;
    for_each_range(route.split, rank, [&](const mesh::Range& of_whole, const mesh::Range& block) {
      int64_t first = 0;
      for (const at::Tensor& x : whole) {
        const mesh::Range to{first, x.size(2)};
        first += to.size;
        copy_rows(tokens_of(heads_of(outgoing[rank], to), block), tokens_of(x, of_whole));
      }
    });
  }
  route.group.all_to_all(incoming, outgoing)->wait();
  std::vector<HeadPiece> pieces;
  for (int rank = 0; rank < p; ++rank) {
    int64_t first = 0;
    const std::vector<mesh::Range> ranges = heads_in(route.shares[rank], whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      const mesh::Range from{first, ranges[i].size};
      first += from.size;
      if (rank != self) {
        pieces.push_back({i, ranges[i], {0, own_tokens[rank]}, heads_of(incoming[rank], from)});
        continue;
      }
      for_each_range(route.split, self, [&](const mesh::Range& of_whole, const mesh::Range& own) {
        pieces.push_back({i, ranges[i], own, tokens_of(whole[i], of_whole)});
      });
    }
  }
  return pieces;
}

}  // namespace trireme::parallel
