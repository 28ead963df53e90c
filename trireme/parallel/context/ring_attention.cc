// Length: the ring, and the attention whose keys go round it, forward and backward.
#include "trireme/parallel/context/ring_attention.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/parallel/context/attention_blocks.h"
#include "trireme/parallel/context/attention_sums.h"
#include "trireme/parallel/context/bf16_attention.h"
#include "trireme/parallel/context/distance_bias.h"
#include "trireme/parallel/context/head_rows.h"
#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {

// Two buffers take turns: one is filled while the other is read by the next rank. A piece that
// arrives is borrowed and not copied, so it lies in its sender's memory, and the sender must not
// write there before the loan is given back. That is why room() waits for the send of the buffer it
// hands out, and why piece_ is dropped before anything is waited for.

RingPass::RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype,
                   int tag, RingOptions options)
    : group_(group), sizes_(std::move(sizes)), dtype_(dtype), tag_(tag), options_(options) {}

RingPass::~RingPass() {
  piece_.reset();
  std::vector<comm::WorkPtr> works = std::move(sends_);
  // Only after an exception: a ring that was finished has none left.
  if (next_ != nullptr) works.push_back(std::move(next_));
  for (const comm::WorkPtr& work : works) {
    if (work->poll()) continue;
    work->abort();
    try {
      work->wait();  // its memory is freed next
    } catch (const std::exception&) {
      // The exception being unwound already reports an error.
    }
  }
}

at::Tensor RingPass::room() {
  Room& room = rooms_[num_rooms_++ % 2];
  // Its last reader may still be at work.
  if (room.sent != nullptr) wait(*room.sent);
  room.sent = nullptr;
  if (!room.buffer.defined()) {
    const int64_t largest = *std::ranges::max_element(sizes_);
    // The loan is only without a copy if the memory is symmetric.
    room.buffer =
        options_.symmetric && dtype_.device().is_cpu()
            ? group_->symmetric_empty({largest}, c10::typeMetaToScalarType(dtype_.dtype()))
            : at::empty({largest}, dtype_);
  }
  has_room_ = true;
  return piece_ = room.buffer.narrow(0, 0, sizes_[owner()]);
}

void RingPass::start() {
  const int p = size();
  const comm::Options options{.tag = tag_, .background = true};
  // A rank without a part sends nothing, and the next one, which knows all sizes, expects nothing.
  if (piece_.numel() > 0) {
    sends_.push_back(group_->send(piece_, (rank() + 1) % p, options));
    // room() has moved on, so this is the buffer that was filled last.
    if (has_room_) rooms_[(num_rooms_ + 1) % 2].sent = sends_.back();
  }
  const int64_t size = sizes_[owner(num_hops_ + 1)];
  if (size > 0) next_ = group_->borrow({size}, dtype_, (rank() + p - 1) % p, options);
  // Without overlap, for measurements: what is hidden otherwise shows as waiting.
  if (!options_.overlap && next_ != nullptr) next_->wait();
}

void RingPass::finish() {
  ++num_hops_;
  has_room_ = false;
  piece_.reset();
  if (next_ == nullptr) {
    piece_ = at::empty({0}, dtype_);
    return;
  }
  wait(*next_);
  piece_ = next_->data();
  next_ = nullptr;
}

void RingPass::end() {
  // The last piece is a loan as well, and its sender waits for it.
  piece_.reset();
  for (const comm::WorkPtr& work : sends_) wait(*work);
  sends_.clear();
}

void RingPass::wait(comm::Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work.wait();
  if (options_.waiting) *options_.waiting += std::chrono::steady_clock::now() - start;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Both rings are under way at once in backward, over one group.
constexpr int kKeysTag = 1;
constexpr int kGradientsTag = 2;

// [B, N, t, H], laid out [B, t, N, H] -> [B, t, N * H], a view
at::Tensor join_heads(const at::Tensor& x_BNtH) { return x_BNtH.transpose(1, 2).flatten(2); }

// One rank's keys and values, or their gradients.
struct Pair {
  at::Tensor k_BKsH;
  at::Tensor v_BKsH;
};

// The same blocks with at most AttentionMask::kCausalTokens queries each.
std::vector<AttentionBlock> with_few_queries(const std::vector<AttentionBlock>& blocks) {
  std::vector<AttentionBlock> result;
  for (const AttentionBlock& block : blocks) {
    // The others have few already.
    const int64_t most = block.reach.is_whole() ? AttentionMask::kCausalTokens : block.queries.size;
    for (int64_t first = 0; first < block.queries.size; first += most) {
      AttentionBlock part = block;
      part.queries = {block.queries.offset + first, std::min(most, block.queries.size - first)};
      result.push_back(part);
    }
  }
  return result;
}

// One block of all scores, if there are any.
std::vector<AttentionBlock> all_of(int64_t batch, int64_t queries, int64_t keys) {
  if (batch == 0 || queries == 0 || keys == 0) return {};
  return {{{0, batch}, {0, queries}, {0, keys}}};
}

// Shared by forward and backward.
struct Call : torch::CustomClassHolder {
  Call(int64_t heads, int64_t kv_heads, const SequenceSplit& split, const SequenceSplit& keys,
       const AttentionReach& reach, AttentionMask mask, comm::Communicator* group,
       RingOptions options)
      : heads(heads),
        kv_heads(kv_heads),
        split(split),
        keys(keys),
        is_across(reach.keys.has_value()),
        mask(std::move(mask)),
        scores(reach.scores),
        has_bias(reach.distance_bias_NR.defined()),
        group(group),
        options(options) {}

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  // The rank whose keys are here in step `step`.
  int key_rank(int step) const {
    const int p = split.num_ranks();
    return (rank() - step + p) % p;
  }

  // The blocks that this rank computes with the keys of step `step`.
  std::vector<AttentionBlock> blocks(int step, int64_t batch) const {
    if (is_across) return all_of(batch, split.num_tokens(rank()), keys.num_tokens(key_rank(step)));
    std::vector<AttentionBlock> blocks = mask.blocks(rank(), key_rank(step));
    // Scores that no kernel computes exist at once for a block.
    return scores.softcap > 0 || has_bias ? with_few_queries(blocks) : blocks;
  }
  // The distances of a block of step `step`, in a bias [N, num_distances].
  BlockBias bias_of(int step, const AttentionBlock& block, int64_t num_distances) const {
    const int64_t query = split.ranges(rank())[0].offset + block.queries.offset;
    const int64_t key = keys.ranges(key_rank(step))[0].offset + block.keys.offset;
    return {block.queries.size, block.keys.size, key - query, num_distances};
  }

  int64_t heads;
  int64_t kv_heads;
  SequenceSplit split;
  SequenceSplit keys;
  bool is_across;  // queries and keys are of different sequences
  AttentionMask mask;
  ScoreForm scores;
  bool has_bias;
  comm::Communicator* group;
  RingOptions options;
};

// All ranks' keys and values, or their gradients, on their way round the ring. The first piece
// belongs to the rank `lead` before this one.
class PairRing {
 public:
  PairRing(const Call& call, const at::Tensor& k_BtG, at::ScalarType dtype, int lead, int tag)
      : split_(call.keys),
        shape_{2, k_BtG.size(0), 0, call.kv_heads, k_BtG.size(2) / call.kv_heads},
        lead_(lead),
        ring_(call.group, sizes(), k_BtG.options().dtype(dtype), tag, call.options) {}

  int size() const { return ring_.size(); }

  // The current piece, and memory for one that replaces it: each tensor is [B, K, s, H].
  Pair piece() const { return pair_of(ring_.piece()); }
  Pair room() { return pair_of(ring_.room()); }
  void start() { ring_.start(); }
  void finish() { ring_.finish(); }
  void end() { ring_.end(); }

 private:
  // A piece is [2, B, s, K, H].
  Pair pair_of(const at::Tensor& flat) const {
    std::vector<int64_t> shape = shape_;
    shape[2] = split_.num_tokens(keys_rank(ring_.owner()));
    const at::Tensor piece = flat.view(shape);
    return {piece.select(0, 0).transpose(1, 2), piece.select(0, 1).transpose(1, 2)};
  }
  // The owner of the keys in the piece that starts at `rank`.
  int keys_rank(int rank) const { return (rank - lead_ + split_.num_ranks()) % split_.num_ranks(); }
  int64_t per_token() const { return shape_[0] * shape_[1] * shape_[3] * shape_[4]; }
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> result;
    for (int rank = 0; rank < split_.num_ranks(); ++rank)
      // A rank without tokens has an empty piece, which RingPass does not send.
      result.push_back(per_token() * split_.num_tokens(keys_rank(rank)));
    return result;
  }

  const SequenceSplit& split_;
  std::vector<int64_t> shape_;
  int lead_;
  RingPass ring_;
};

// Calls work(step, keys of rank owner(step)) for each step, while the next keys arrive. `work` must
// not keep them.
template <typename Work>
void for_each_piece(const Call& call, const at::Tensor& k_BtG, const at::Tensor& v_BtG,
                    const Work& work) {
  PairRing ring(call, k_BtG, k_BtG.scalar_type(), /*lead=*/0, kKeysTag);
  Pair keys{split_heads(k_BtG, call.kv_heads), split_heads(v_BtG, call.kv_heads)};
  for (int step = 0; step < ring.size(); ++step) {
    const bool has_next = step + 1 < ring.size();
    // The own keys are not in memory that others may read, so the first piece is copied there,
    // once.
    if (has_next && step == 0) {
      const Pair out = ring.room();
      out.k_BKsH.copy_(keys.k_BKsH);
      out.v_BKsH.copy_(keys.v_BKsH);
    }
    // Before the work: keys travel while this rank computes.
    if (has_next) ring.start();
    work(step, keys);
    // Before finish(), which gives the piece's memory back.
    keys = {};
    if (!has_next) break;
    ring.finish();
    keys = ring.piece();
  }
  ring.end();
}

class RingFunction : public torch::autograd::Function<RingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                            const at::Tensor& v_BtG, const std::optional<at::Tensor>& sinks_N,
                            const std::optional<at::Tensor>& bias_NR,
                            const c10::intrusive_ptr<Call>& call) {
    const at::Tensor q = split_heads(q_BtD, call->heads);
    const at::Tensor bias = wide_bias(bias_NR.value_or(at::Tensor()), q);
    OnlineSoftmax softmax(q);
    // The order of the pieces differs from rank to rank, but for one rank it is always the same.
    for_each_piece(*call, k_BtG, v_BtG, [&](int step, const Pair& keys) {
      for (const AttentionBlock& block : call->blocks(step, q.size(0))) {
        ScoreForm scores = call->scores;
        if (bias.defined()) scores.bias_Nts = call->bias_of(step, block, bias.size(1)).of(bias);
        softmax.add(block, attention(block_of(q, block.sequences, block.queries),
                                     block_of(keys.k_BKsH, block.sequences, block.keys),
                                     block_of(keys.v_BKsH, block.sequences, block.keys),
                                     block.reach, scores));
      }
    });
    if (sinks_N) softmax.add_sinks(*sinks_N);
    const at::Tensor out_BtD = join_heads(softmax.out_BNtH());
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({q_BtD, k_BtG, v_BtG, out_BtD, softmax.lse_BNt(),
                            sinks_N.value_or(at::Tensor()), bias_NR.value_or(at::Tensor())});
    return out_BtD;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& k_BtG = saved[1];
    const at::Tensor q = split_heads(saved[0], call->heads);
    const at::Tensor grad_out = split_heads(grads[0], call->heads);
    const PartialAttention whole{split_heads(saved[3], call->heads), saved[4]};
    const at::Tensor bias = wide_bias(saved[6], q);
    const at::Tensor grad_bias = bias.defined() ? at::zeros_like(bias) : bias;
    BlockSum grad_q(q);
    const at::ScalarType sum_dtype = accumulation_dtype(q.scalar_type());

    // Gradients start one rank later than keys, at the first rank that does not own them. The last
    // hop therefore brings them home.
    PairRing ring(*call, k_BtG, sum_dtype, /*lead=*/1, kGradientsTag);
    Pair home;  // the part from this rank's own queries
    for_each_piece(*call, k_BtG, saved[2], [&](int step, const Pair& keys) {
      // The sums of step 1 are written straight into the ring's memory: it is the first piece that
      // travels.
      const Pair first = step == 1 ? ring.room() : Pair{};
      BlockSum grad_k(keys.k_BKsH, first.k_BKsH);
      BlockSum grad_v(keys.v_BKsH, first.v_BKsH);
      for (const AttentionBlock& block : call->blocks(step, q.size(0))) {
        const auto& [sequences, queries, keys_of, reach] = block;
        ScoreForm scores = call->scores;
        std::optional<BlockBias> of_block;
        if (bias.defined()) of_block = call->bias_of(step, block, bias.size(1));
        if (of_block) scores.bias_Nts = of_block->of(bias);
        const AttentionGradients part = attention_backward(
            block_of(grad_out, sequences, queries), block_of(q, sequences, queries),
            block_of(keys.k_BKsH, sequences, keys_of), block_of(keys.v_BKsH, sequences, keys_of),
            {block_of(whole.out_BNtH, sequences, queries),
             block_of(whole.lse_BNt, sequences, queries)},
            reach, scores, {grad_k.room(sequences, keys_of), grad_v.room(sequences, keys_of)});
        if (of_block) of_block->add(grad_bias, part.bias_Nts);
        grad_q.add(sequences, queries, part.q_BNtH);
        grad_k.add(sequences, keys_of, part.k_BKsH);
        grad_v.add(sequences, keys_of, part.v_BKsH);
      }
      // The part from its own queries does not travel at all.
      if (step == 0) {
        home = {grad_k.exact_sum_BNtH(), grad_v.exact_sum_BNtH()};
        return;
      }
      if (step == 1) {
        // In the ring's memory.
        static_cast<void>(grad_k.sum_BNtH(sum_dtype));
        static_cast<void>(grad_v.sum_BNtH(sum_dtype));
      } else {
        // It has travelled while this step was computed.
        ring.finish();
        const Pair travelling = ring.piece();
        const Pair sum = ring.room();
        combine_rows(sum.k_BKsH, {travelling.k_BKsH}, {grad_k.exact_sum_BNtH()});
        combine_rows(sum.v_BKsH, {travelling.v_BKsH}, {grad_v.exact_sum_BNtH()});
      }
      ring.start();
    });
    // While the last sums travel.
    const at::ScalarType dtype = q.scalar_type();
    const at::Tensor sum_q = grad_q.sum_BNtH(dtype);
    Pair rest;  // from the other ranks' queries
    if (ring.size() > 1) {
      ring.finish();
      rest = ring.piece();
    }
    const at::Tensor sum_k = sum_of(home.k_BKsH, rest.k_BKsH, dtype);
    const at::Tensor sum_v = sum_of(home.v_BKsH, rest.v_BKsH, dtype);
    // Before end(), which waits for the readers of this rank's own sums.
    rest = {};
    ring.end();
    return {join_heads(sum_q),
            join_heads(sum_k),
            join_heads(sum_v),
            gradient_of_sinks(saved[5], grad_out, whole),
            bias.defined() ? grad_bias.to(saved[6].scalar_type()) : bias,
            at::Tensor()};
  }

 private:
  // In the dtype of the scores.
  static at::Tensor wide_bias(const at::Tensor& bias_NR, const at::Tensor& q) {
    return bias_NR.defined() ? bias_NR.to(accumulation_dtype(q.scalar_type())) : bias_NR;
  }

  // Laid out by token. rest: undefined on one rank
  static at::Tensor sum_of(const at::Tensor& home, const at::Tensor& rest, at::ScalarType dtype) {
    const bool is_in_place = home.scalar_type() == dtype;
    const at::Tensor sum =
        is_in_place ? home : empty_by_token(home.sizes(), home.options().dtype(dtype));
    if (!is_in_place || rest.defined()) combine_rows(sum, {home}, {rest});
    return sum;
  }

  // A sink has no value, so its score's gradient is p * (0 - sum(do * out)).
  static at::Tensor gradient_of_sinks(const at::Tensor& sinks_N, const at::Tensor& grad_out_BNtH,
                                      const PartialAttention& whole) {
    if (!sinks_N.defined()) return {};
    const at::ScalarType dtype = whole.lse_BNt.scalar_type();
    const at::Tensor p_BNt = (sinks_N.to(dtype).unsqueeze(-1) - whole.lse_BNt).exp_();
    const at::Tensor rows_BNt = (grad_out_BNtH.to(dtype) * whole.out_BNtH.to(dtype)).sum(-1);
    return (p_BNt * rows_BNt).sum({0, 2}).neg_().to(sinks_N.scalar_type());
  }
};

c10::intrusive_ptr<Call> make_call(const at::Tensor& q_BtD, int64_t heads, int64_t kv_heads,
                                   const SequenceSplit& split, const SequenceSplit& keys,
                                   comm::Communicator* group, const AttentionReach& reach,
                                   const RingOptions& options) {
  // Our own kernel leaves out what is masked.
  const bool skips = reach.scores.softcap == 0 && has_bf16_attention(split_heads(q_BtD, heads));
  const int64_t causal_tokens =
      skips ? std::max<int64_t>(1, q_BtD.size(1)) : AttentionMask::kCausalTokens;
  return c10::make_intrusive<Call>(heads, kv_heads, split, keys, reach,
                                   AttentionMask(split, q_BtD.size(0), reach, causal_tokens), group,
                                   options);
}

std::optional<at::Tensor> sinks_of(const AttentionReach& reach, int64_t heads) {
  if (!reach.sinks_N.defined()) return std::nullopt;
  TRIREME_ASSERT(reach.sinks_N.numel() == heads, "sinks ", reach.sinks_N.sizes(), " of ", heads,
                 " heads");
  return reach.sinks_N;
}

std::optional<at::Tensor> bias_of(const AttentionReach& reach, int64_t heads,
                                  const SequenceSplit& split) {
  TRIREME_ASSERT(
      !reach.keys || (!reach.causal && reach.window == 0 && !reach.documents_BT.defined() &&
                      !reach.distance_bias_NR.defined()),
      "attention across sequences, with what only tokens of one have");
  const at::Tensor& bias = reach.distance_bias_NR;
  if (!bias.defined()) return std::nullopt;
  TRIREME_ASSERT(bias.dim() == 2 && bias.size(0) == heads && bias.size(1) % 2 == 1 &&
                     bias.size(1) / 2 + 1 >= split.length(),
                 "a bias ", bias.sizes(), " of ", heads, " heads and ", split.length(), " tokens");
  for (int rank = 0; rank < split.num_ranks(); ++rank) {
    TRIREME_ASSERT(split.ranges(rank).size() <= 1, "a bias by distance of tokens out of order");
  }
  return bias;
}

}  // namespace

at::Tensor ring_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG, const at::Tensor& v_BtG,
                          int64_t heads, int64_t kv_heads, const SequenceSplit& split,
                          comm::Communicator& group, const AttentionReach& reach,
                          RingOptions options) {
  const SequenceSplit& keys = reach.keys ? *reach.keys : split;
  check_attention_shapes(q_BtD, k_BtG, v_BtG, heads, kv_heads, split, keys, group.rank(),
                         group.size());
  return RingFunction::apply(
      q_BtD, k_BtG, v_BtG, sinks_of(reach, heads), bias_of(reach, heads, split),
      make_call(q_BtD, heads, kv_heads, split, keys, &group, reach, options));
}

at::Tensor whole_attention(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                           const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads,
                           const AttentionReach& reach) {
  const SequenceSplit split(q_BTD.size(1), 1, SequenceOrder::kContiguous);
  const SequenceSplit keys =
      reach.keys ? SequenceSplit(k_BTG.size(1), 1, SequenceOrder::kContiguous) : split;
  check_attention_shapes(q_BTD, k_BTG, v_BTG, heads, kv_heads, split, keys, 0, 1);
  return RingFunction::apply(q_BTD, k_BTG, v_BTG, sinks_of(reach, heads),
                             bias_of(reach, heads, split),
                             make_call(q_BTD, heads, kv_heads, split, keys, nullptr, reach, {}));
}

}  // namespace trireme::parallel
