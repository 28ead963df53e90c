#include "trireme/parallel/context/context_attention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/parallel/context/head_rows.h"
#include "trireme/parallel/context/local_attention.h"
#include "trireme/parallel/context/ring_attention.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

// The heads that a rank computes.
struct Share {
  mesh::Range queries;
  // A rank's query heads may read the same kv head as the next rank's. Both get it, and its
  // gradients are summed.
  mesh::Range kv;
};

// Assigns heads and tokens to the ranks that compute them.
struct Route : torch::CustomClassHolder {
  Route(int64_t heads, int64_t kv_heads, const SequenceSplit& split, comm::Communicator& group,
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
  const Share& mine() const { return shares[group.rank()]; }
  int64_t num_kv_heads_sent() const {
    int64_t sum = 0;
    for (const Share& share : shares) sum += share.kv.size;
    return sum;
  }

  int64_t heads;
  int64_t kv_heads;
  SequenceSplit split;
  comm::Communicator& group;
  AllToAllOptions options;
  std::vector<Share> shares;
};

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

at::Tensor tokens_of(const at::Tensor& x_BtNH, const mesh::Range& tokens) {
  return x_BtNH.narrow(1, tokens.offset, tokens.size);
}
at::Tensor heads_of(const at::Tensor& x_BtNH, const mesh::Range& heads) {
  return x_BtNH.narrow(2, heads.offset, heads.size);
}

// This rank's tokens of all heads, q, k and v [B, t, N or K, H] or q alone -> all tokens of this
// rank's heads, one after the other: [B, T, m, H].
// Each number is read and written once where it is packed, moved, and put into the order of the
// sequence; this rank's own once in all.
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

// The reverse: all tokens of this rank's heads, [B, T, heads of mine, H] each -> calls use(i,
// heads, tokens, x) with what tensor i has for these heads and tokens of this rank, x [B, tokens,
// heads, H], rank by rank.
template <typename Use>
void to_tokens(const Route& route, const Tensors& whole, const Use& use) {
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
  for (int rank = 0; rank < p; ++rank) {
    int64_t first = 0;
    const std::vector<mesh::Range> ranges = heads_in(route.shares[rank], whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      const mesh::Range from{first, ranges[i].size};
      first += from.size;
      if (rank != self) {
        use(i, ranges[i], mesh::Range{0, own_tokens[rank]}, heads_of(incoming[rank], from));
        continue;
      }
      for_each_range(route.split, self, [&](const mesh::Range& of_whole, const mesh::Range& own) {
        use(i, ranges[i], own, tokens_of(whole[i], of_whole));
      });
    }
  }
}

c10::intrusive_ptr<Route> route_of(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<Route>(ctx->saved_data["route"].toCapsule());
}

// q [B, t, N, H], k and v [B, t, K, H] -> this rank's heads of all tokens.
class ToHeadsFunction : public torch::autograd::Function<ToHeadsFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const c10::intrusive_ptr<Route>& route) {
    ctx->saved_data["route"] = c10::IValue::make_capsule(route);
    const Share& mine = route->mine();
    return to_heads(*route, {q, k, v})
        .split_with_sizes({mine.queries.size, mine.kv.size, mine.kv.size}, 2);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto route = route_of(ctx);
    const at::ScalarType dtype = grads[0].scalar_type();
    // Gradients of a kv head that several ranks read are added with the accuracy of the kernel's
    // own sums.
    const bool is_shared = route->num_kv_heads_sent() > route->kv_heads;
    const auto options = grads[0].options();
    const auto sum_options = options.dtype(is_shared ? accumulation_dtype(dtype) : dtype);
    std::vector<int64_t> shape = grads[0].sizes().vec();
    shape[1] = route->split.num_tokens(route->group.rank());
    const auto of_heads = [&](int64_t heads) {
      shape[2] = heads;
      return shape;
    };
    const at::Tensor sums[] = {at::empty(of_heads(route->heads), options),
                               at::empty(of_heads(route->kv_heads), sum_options),
                               at::empty(of_heads(route->kv_heads), sum_options)};
    if (is_shared) {
      sums[1].zero_();
      sums[2].zero_();
    }
    // In rank order, which fixes the order of the sum.
    to_tokens(
        *route, grads,
        [&](size_t i, const mesh::Range& heads, const mesh::Range& tokens, const at::Tensor& part) {
          const at::Tensor to = tokens_of(heads_of(sums[i], heads), tokens);
          if (is_shared && i > 0) {
            to.add_(part);
          } else {
            copy_rows(to, part);
          }
        });
    return {sums[0], sums[1].to(dtype), sums[2].to(dtype), at::Tensor()};
  }
};

// This rank's heads of all tokens, [B, T, n, H] -> [B, t, N, H].
class ToTokensFunction : public torch::autograd::Function<ToTokensFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& out_BTnH,
                            const c10::intrusive_ptr<Route>& route) {
    ctx->saved_data["route"] = c10::IValue::make_capsule(route);
    const int64_t t = route->split.num_tokens(route->group.rank());
    const at::Tensor out_BtNH =
        at::empty({out_BTnH.size(0), t, route->heads, out_BTnH.size(3)}, out_BTnH.options());
    to_tokens(
        *route, {out_BTnH},
        [&](size_t, const mesh::Range& heads, const mesh::Range& tokens, const at::Tensor& part) {
          copy_rows(tokens_of(heads_of(out_BtNH, heads), tokens), part);
        });
    return out_BtNH;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {to_heads(*route_of(ctx), {grads[0]}), at::Tensor()};
  }
};

// Whether the share's query heads read its kv heads in runs of equal length, as grouped queries do.
// Only then can a kernel for grouped queries be used as it is. Otherwise each query head gets a
// copy of its kv head.
bool is_grouped(const Share& share, int64_t copies) {
  if (share.queries.size % share.kv.size != 0) return false;
  const int64_t run = share.queries.size / share.kv.size;
  for (int64_t i = 0; i < share.queries.size; ++i) {
    if ((share.queries.offset + i) / copies - share.kv.offset != i / run) return false;
  }
  return true;
}

// The kv head that each query head of the share reads.
at::Tensor kv_of_queries(const Share& share, int64_t copies, at::Device device) {
  const int64_t begin = share.queries.offset;
  const at::Tensor heads =
      at::arange(begin, begin + share.queries.size, at::device(device).dtype(at::kLong));
  return heads.floor_divide(copies) - share.kv.offset;
}

}  // namespace

void check_all_to_all(int64_t heads, int num_ranks) {
  TRIREME_CHECK(heads >= num_ranks, "all-to-all attention gives each of ", num_ranks,
                " ranks a query head, but there are ", heads,
                "; use fewer ranks on the context axis, or ring attention");
}

at::Tensor all_to_all_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                                const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                                const SequenceSplit& split, comm::Communicator& group,
                                const LocalAttention& attention, AllToAllOptions options) {
  check_attention_shapes(q_BtD, k_BtG, v_BtG, heads, kv_heads, split, split, group.rank(),
                         group.size());
  check_all_to_all(heads, group.size());
  const auto route = c10::make_intrusive<Route>(heads, kv_heads, split, group, options);
  const variable_list whole = ToHeadsFunction::apply(
      view_heads(q_BtD, heads), view_heads(k_BtG, kv_heads), view_heads(v_BtG, kv_heads), route);
  at::Tensor k = whole[1];
  at::Tensor v = whole[2];
  const Share& mine = route->mine();
  if (const int64_t copies = heads / kv_heads; !is_grouped(mine, copies)) {
    const at::Tensor kv = kv_of_queries(mine, copies, k.device());
    k = k.index_select(2, kv);
    v = v.index_select(2, kv);
  }
  const at::Tensor out =
      attention(whole[0].flatten(2), k.flatten(2), v.flatten(2), mine.queries.size, k.size(2));
  return ToTokensFunction::apply(view_heads(out, mine.queries.size), route).flatten(2);
}

at::Tensor all_to_all_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                                const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                                const SequenceSplit& split, comm::Communicator& group,
                                const AttentionReach& reach, AllToAllOptions options) {
  AttentionReach own = reach;
  const mesh::Range queries = mesh::split_range(heads, group.size(), group.rank());
  for (at::Tensor* const of_heads : {&own.sinks_N, &own.distance_bias_NR}) {
    if (of_heads->defined()) *of_heads = of_heads->narrow(0, queries.offset, queries.size);
  }
  const LocalAttention attention = [&](const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, int64_t n,
                                       int64_t m) { return whole_attention(q, k, v, n, m, own); };
  return all_to_all_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, split, group, attention,
                              options);
}

void check_context(ContextForm form, int64_t heads, int num_ranks) {
  if (form == ContextForm::kAllToAll) check_all_to_all(heads, num_ranks);
}

at::Tensor context_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                             const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                             const ContextParallel& context, const AttentionReach& reach) {
  // Across sequences the keys are few, and go round the ring in either form.
  if (context.form == ContextForm::kAllToAll && !reach.keys) {
    return all_to_all_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, context.split, context.group,
                                reach, {.symmetric = context.ring.symmetric});
  }
  return ring_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, context.split, context.group, reach,
                        context.ring);
}

}  // namespace trireme::parallel
