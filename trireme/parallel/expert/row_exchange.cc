#include "trireme/parallel/expert/row_exchange.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/parallel/expert/expert_hop.h"
#include "trireme/parallel/expert/expert_replicas.h"
#include "trireme/parallel/expert/token_rows.h"

namespace trireme::parallel {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The hops of the rows: none on one rank, one straight to each rank, or two: to a rank on each
// host, and from there to the others of that host.
struct RowExchange::State {
  ExpertOrder order;
  ExpertAxis axis;
  std::vector<int64_t> first;     // [p + 1] rank r computes the experts [first[r], first[r + 1])
  bool background = false;        // the first tokens of forward and the last rows of backward
  bool is_ahead = false;          // those tokens were sent before they were asked for
  std::vector<ExpertHop> hops{};  // each is made when the rows before it are there
  at::Tensor tokens{};            // on one rank, those in transit

  bool has_two() const { return axis.between_hosts != nullptr; }
  HopAxis hop_axis(bool is_first) const {
    const auto first_of = [&](int rank) { return first[static_cast<size_t>(rank)]; };
    comm::Communicator* const group =
        has_two() ? (is_first ? axis.between_hosts : axis.within_host) : axis.group;
    // The first of two hops counts in hosts. The second has only the experts of one of them.
    const int stride = has_two() && is_first ? axis.within_host->size() : 1;
    const int begin =
        has_two() && !is_first ? axis.between_hosts->rank() * axis.within_host->size() : 0;
    HopAxis hop{.group = group, .first = {}, .waiting = axis.waiting, .symmetric = axis.symmetric};
    for (int r = 0; r <= group->size(); ++r) {
      hop.first.push_back(first_of(begin + r * stride) - first_of(begin));
    }
    return hop;
  }

  void start_tokens(const at::Tensor& table, const at::Tensor& values, bool in_background) {
    tokens = table;
    if (axis.size() == 1) return;
    if (hops.empty()) {
      hops.emplace_back(hop_axis(/*is_first=*/true), RowList{order.tokens_R, {order.counts}});
    }
    hops[0].start_tokens(table, values, in_background);
  }
  // The table of the experts' tokens, and the values of their rows.
  ExpertHop::Tokens finish_tokens(const at::Tensor& values) {
    if (axis.size() == 1) return {std::exchange(tokens, {}), values};
    tokens.reset();
    ExpertHop::Tokens arrived = hops[0].finish_tokens();
    if (!has_two()) return arrived;
    if (hops.size() == 1) hops.emplace_back(hop_axis(/*is_first=*/false), hops[0].arrived());
    // Over the host's own memory there is nothing to hide behind.
    hops[1].start_tokens(arrived.table, arrived.values, /*background=*/false);
    return hops[1].finish_tokens();
  }
  // The rows of that table that the experts read.
  const at::Tensor& token_of_row() const {
    return hops.empty() ? order.tokens_R : hops.back().arrived().tokens;
  }

  // For one rank finish_rows() gets what start_rows() returns.
  at::Tensor start_rows(at::Tensor rows, bool in_background) {
    if (axis.size() == 1) return rows;
    if (has_two()) {
      hops[1].start_rows(rows, /*background=*/false);
      rows = hops[1].finish_rows();
    }
    hops[0].start_rows(rows, in_background);
    return {};
  }
  at::Tensor finish_rows(const at::Tensor& rows) {
    return axis.size() == 1 ? rows : hops[0].finish_rows();
  }
};

namespace {

using State = RowExchange::State;

struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(std::shared_ptr<State> state) : state(std::move(state)) {}
  std::shared_ptr<State> state;
};
using HolderPtr = c10::intrusive_ptr<StateHolder>;

void save(AutogradContext* ctx, const HolderPtr& holder) {
  ctx->saved_data["state"] = c10::IValue::make_capsule(holder);
}
State& state_of(AutogradContext* ctx) {
  return *c10::static_intrusive_pointer_cast<StateHolder>(ctx->saved_data["state"].toCapsule())
              ->state;
}

// Between the two parts the tokens are in `state`. What stands for them in the graph has no
// elements.
class StartFunction : public torch::autograd::Function<StartFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_SD, const HolderPtr& holder) {
    save(ctx, holder);
    State& state = *holder->state;
    // Sent before: the router's answer was known earlier than the graph.
    if (!std::exchange(state.is_ahead, false)) state.start_tokens(x_SD, {}, state.background);
    return at::empty({0}, x_SD.options());
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    State& state = state_of(ctx);
    // The order of rows is undone: each token sums its experts' rows in the order of its choices.
    const at::Tensor rows = state.finish_rows(std::exchange(state.tokens, {}));
    return {sum_of_rows(rows, {}, state.order), at::Tensor()};
  }
};

class FinishFunction : public torch::autograd::Function<FinishFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*started*/,
                            const HolderPtr& holder) {
    save(ctx, holder);
    State& state = *holder->state;
    const at::Tensor table = state.finish_tokens({}).table;
    return table.index_select(0, state.token_of_row());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    State& state = state_of(ctx);
    // Gradients of rows go back while the layers before compute theirs.
    state.tokens = state.start_rows(grads[0].contiguous(), state.background);
    return {at::empty({0}, grads[0].options()), at::Tensor()};
  }
};

class ToTokensFunction : public torch::autograd::Function<ToTokensFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& results,
                            const at::Tensor& weights_SK, const HolderPtr& holder) {
    save(ctx, holder);
    State& state = *holder->state;
    const at::Tensor rows_RD =
        state.finish_rows(state.start_rows(results, /*in_background=*/false));
    ctx->save_for_backward({rows_RD, weights_SK});
    return sum_of_rows(rows_RD, weights_SK, state.order);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    State& state = state_of(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad_SD = grads[0].contiguous();
    const at::Tensor weights_R = weights_of_rows(saved[1], state.order);
    // In the background: the gradient of the weights is computed meanwhile.
    state.start_tokens(grad_SD, weights_R, /*in_background=*/true);
    const at::Tensor grad_weights = gradient_of_weights(grad_SD, saved[0], state.order);
    const ExpertHop::Tokens arrived = state.finish_tokens(weights_R);
    return {weighted_rows(arrived.table, state.token_of_row(), arrived.values), grad_weights,
            at::Tensor()};
  }
};

}  // namespace

RowExchange::RowExchange(ExpertOrder order, ExpertAxis axis, std::vector<int64_t> first) {
  const auto num_experts = std::ssize(order.counts);
  // Without replicas each rank computes its own experts.
  if (first.empty()) first = ExpertReplicas({}, num_experts, axis).first();
  TRIREME_ASSERT(std::ssize(first) == axis.size() + 1 && first.back() == num_experts,
                 "experts up to ", first.back(), " of ", num_experts, " on ", axis.size(),
                 " ranks");
  state_ = std::make_shared<State>(State{std::move(order), std::move(axis), std::move(first)});
}
RowExchange::~RowExchange() = default;

ExpertRows RowExchange::rows() const {
  if (state_->axis.size() == 1) return {state_->order.counts};
  return state_->hops.back().arrived().rows;
}

at::Tensor RowExchange::start(const at::Tensor& x_SD, bool background) {
  TRIREME_ASSERT(x_SD.dim() == 2 && x_SD.size(0) == state_->order.rows_SK.size(0),
                 "tokens of shape ", x_SD.sizes(), " and an order of ",
                 state_->order.rows_SK.size(0));
  state_->background = background;
  return StartFunction::apply(x_SD.contiguous(), c10::make_intrusive<StateHolder>(state_));
}

at::Tensor RowExchange::start_to_experts(const at::Tensor& x_SD) {
  return start(x_SD, /*background=*/true);
}

at::Tensor RowExchange::finish_to_experts(const at::Tensor& started) {
  return FinishFunction::apply(started, c10::make_intrusive<StateHolder>(state_));
}

void RowExchange::send_ahead(const at::Tensor& x_SD) {
  state_->start_tokens(x_SD.detach().contiguous(), {}, /*in_background=*/true);
  state_->is_ahead = true;
}

at::Tensor RowExchange::to_experts(const at::Tensor& x_SD) {
  return finish_to_experts(start(x_SD, /*background=*/false));
}

at::Tensor RowExchange::to_tokens(const at::Tensor& results, const at::Tensor& weights_SK) {
  const State& state = *state_;
  TRIREME_ASSERT(results.dim() == 2 && weights_SK.sizes() == state.order.rows_SK.sizes(),
                 "results of shape ", results.sizes(), " and weights of shape ", weights_SK.sizes(),
                 " for assignments of shape ", state.order.rows_SK.sizes());
  const at::Tensor weights = weights_SK.to(sum_type(results.scalar_type())).contiguous();
  return ToTokensFunction::apply(results.contiguous(), weights,
                                 c10::make_intrusive<StateHolder>(state_));
}

}  // namespace trireme::parallel
