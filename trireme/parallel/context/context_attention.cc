#include "trireme/parallel/context/context_attention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
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
  int64_t size() const { return queries.size + 2 * kv.size; }
};

// Assigns heads and tokens to the ranks that compute them.
struct Route : torch::CustomClassHolder {
  Route(int64_t heads, int64_t kv_heads, const SequenceSplit& split, comm::Communicator& group)
      : heads(heads), kv_heads(kv_heads), split(split), group(group) {
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

  int64_t heads;
  int64_t kv_heads;
  SequenceSplit split;
  comm::Communicator& group;
  std::vector<Share> shares;
};

// outgoing[r]: rank r's heads of this rank's tokens, [B, t, m_r, H] -> [B, T, m, H]
at::Tensor to_heads(const Route& route, const Tensors& outgoing) {
  const at::Tensor& mine = outgoing[route.group.rank()];
  Tensors incoming;
  for (int rank = 0; rank < route.group.size(); ++rank) {
    std::vector<int64_t> shape = mine.sizes().vec();
    shape[1] = route.split.num_tokens(rank);
    incoming.push_back(at::empty(shape, mine.options()));
  }
  // The collective knows only ranks; assemble() puts the tokens into the order of the sequence.
  route.group.all_to_all(incoming, outgoing)->wait();
  return route.split.assemble(incoming, 1);
}

// The reverse: whole [B, T, m, H] -> for each rank's num_heads[r], this rank's tokens [B, t, m_r,
// H]
Tensors to_tokens(const Route& route, const at::Tensor& whole,
                  const std::vector<int64_t>& num_heads) {
  Tensors outgoing;
  Tensors incoming;
  std::vector<int64_t> shape = whole.sizes().vec();
  shape[1] = route.split.num_tokens(route.group.rank());
  for (int rank = 0; rank < route.group.size(); ++rank) {
    outgoing.push_back(route.split.local(whole, 1, rank).contiguous());
    shape[2] = num_heads[rank];
    incoming.push_back(at::empty(shape, whole.options()));
  }
  route.group.all_to_all(incoming, outgoing)->wait();
  return incoming;
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
    Tensors outgoing;
    // One message for q, k and v: three collectives would cost three latencies.
    for (const Share& share : route->shares) {
      outgoing.push_back(at::cat({q.narrow(2, share.queries.offset, share.queries.size),
                                  k.narrow(2, share.kv.offset, share.kv.size),
                                  v.narrow(2, share.kv.offset, share.kv.size)},
                                 2));
    }
    const Share& mine = route->mine();
    return to_heads(*route, outgoing)
        .split_with_sizes({mine.queries.size, mine.kv.size, mine.kv.size}, 2);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto route = route_of(ctx);
    std::vector<int64_t> num_heads;
    for (const Share& share : route->shares) num_heads.push_back(share.size());
    const Tensors incoming = to_tokens(*route, at::cat(grads, 2), num_heads);
    Tensors grad_q;
    std::vector<int64_t> shape = incoming[0].sizes().vec();
    shape[2] = route->kv_heads;
    // Gradients of a kv head come from several ranks, so they are added with the accuracy of the
    // kernel's own sums.
    const at::ScalarType dtype = incoming[0].scalar_type();
    const auto options = incoming[0].options().dtype(accumulation_dtype(dtype));
    at::Tensor grad_k = at::zeros(shape, options);
    at::Tensor grad_v = at::zeros(shape, options);
    // In rank order, which fixes the order of the sum.
    for (size_t rank = 0; rank < incoming.size(); ++rank) {
      const auto& [queries, kv] = route->shares[rank];
      const Tensors parts = incoming[rank].split_with_sizes({queries.size, kv.size, kv.size}, 2);
      grad_q.push_back(parts[0]);
      grad_k.narrow(2, kv.offset, kv.size).add_(parts[1]);
      grad_v.narrow(2, kv.offset, kv.size).add_(parts[2]);
    }
    return {at::cat(grad_q, 2), grad_k.to(dtype), grad_v.to(dtype), at::Tensor()};
  }
};

// This rank's heads of all tokens, [B, T, n, H] -> [B, t, N, H].
class ToTokensFunction : public torch::autograd::Function<ToTokensFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& out_BTnH,
                            const c10::intrusive_ptr<Route>& route) {
    ctx->saved_data["route"] = c10::IValue::make_capsule(route);
    std::vector<int64_t> num_heads;
    for (const Share& share : route->shares) num_heads.push_back(share.queries.size);
    return at::cat(to_tokens(*route, out_BTnH, num_heads), 2);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto route = route_of(ctx);
    Tensors outgoing;
    for (const Share& share : route->shares)
      outgoing.push_back(grads[0].narrow(2, share.queries.offset, share.queries.size).contiguous());
    return {to_heads(*route, outgoing), at::Tensor()};
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
                                const LocalAttention& attention) {
  check_attention_shapes(q_BtD, k_BtG, v_BtG, heads, kv_heads, split, split, group.rank(),
                         group.size());
  check_all_to_all(heads, group.size());
  const auto route = c10::make_intrusive<Route>(heads, kv_heads, split, group);
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
                                const AttentionReach& reach) {
  AttentionReach own = reach;
  const mesh::Range queries = mesh::split_range(heads, group.size(), group.rank());
  for (at::Tensor* const of_heads : {&own.sinks_N, &own.distance_bias_NR}) {
    if (of_heads->defined()) *of_heads = of_heads->narrow(0, queries.offset, queries.size);
  }
  const LocalAttention attention = [&](const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, int64_t n,
                                       int64_t m) { return whole_attention(q, k, v, n, m, own); };
  return all_to_all_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, split, group, attention);
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
                                reach);
  }
  return ring_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, context.split, context.group, reach,
                        context.ring);
}

}  // namespace trireme::parallel
