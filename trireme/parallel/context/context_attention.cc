#include "trireme/parallel/context/context_attention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/parallel/context/head_exchange.h"
#include "trireme/parallel/context/head_rows.h"
#include "trireme/parallel/context/local_attention.h"
#include "trireme/parallel/context/ring_attention.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
    for (const HeadPiece& piece : to_tokens(*route, grads)) {
      const at::Tensor to = tokens_of(heads_of(sums[piece.tensor], piece.heads), piece.tokens);
      if (is_shared && piece.tensor > 0) {
        to.add_(piece.part_BtNH);
      } else {
        copy_rows(to, piece.part_BtNH);
      }
    }
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
    for (const HeadPiece& piece : to_tokens(*route, {out_BTnH})) {
      copy_rows(tokens_of(heads_of(out_BtNH, piece.heads), piece.tokens), piece.part_BtNH);
    }
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
