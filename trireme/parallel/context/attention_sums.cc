#include "trireme/parallel/context/attention_sums.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

namespace trireme::parallel {
namespace {

at::Tensor laid_out_by_token(const at::Tensor& x_BNtH) {
  return x_BNtH.transpose(1, 2).contiguous().transpose(1, 2);
}

constexpr auto kNothing = [](const mesh::Range&, const mesh::Range&) {};

}  // namespace

bool Frontier::is_before(const mesh::Range& sequences, const mesh::Range& tokens) const {
  const auto first = ends_.begin() + sequences.offset;
  return std::all_of(first, first + sequences.size,
                     [&](int64_t end) { return end <= tokens.offset; });
}

template <typename Clear>
bool Frontier::move(const mesh::Range& sequences, const mesh::Range& tokens, const Clear& clear) {
  const auto first = ends_.begin() + sequences.offset;
  const auto last = first + sequences.size;
  // Ranges of a sequence are written in rising order, so one number per sequence says what has been
  // written.
  const bool is_new = is_before(sequences, tokens);
  const int64_t written = tokens.offset + tokens.size;
  const int64_t cleared = is_new ? tokens.offset : written;
  // What was skipped has to be cleared once, or later parts would be added to memory that nobody
  // wrote.
  for (auto end = first; end != last; ++end) {
    if (*end < cleared)
      clear(mesh::Range{end - ends_.begin(), 1}, mesh::Range{*end, cleared - *end});
    *end = std::max(*end, written);
  }
  return is_new;
}

BlockRows::BlockRows(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH)
    : shape_(like_BNtH.sizes().vec()),
      options_(like_BNtH.options()),
      sum_dtype_(accumulation_dtype(like_BNtH.scalar_type())),
      rows_BNtH_(out_BNtH),
      stored_(like_BNtH.size(0)),
      waits_(like_BNtH.size(0)) {}

at::Tensor BlockRows::room(const mesh::Range& sequences, const mesh::Range& tokens) const {
  const bool has_room = rows_BNtH_.defined() && rows_BNtH_.scalar_type() == sum_dtype_;
  if (!has_room || !stored_.is_before(sequences, tokens)) return {};
  return block_of(rows_BNtH_, sequences, tokens);
}

bool BlockRows::store(const mesh::Range& sequences, const mesh::Range& tokens,
                      const at::Tensor& part) {
  // The first part often covers all. Taking it over saves a pass over the memory.
  const bool is_taken = !rows_BNtH_.defined() && is_whole(part);
  if (is_taken) {
    rows_BNtH_ = laid_out_by_token(part);
  } else if (!rows_BNtH_.defined()) {
    rows_BNtH_ = empty_by_token(shape_, part.options());
  }
  // Blocks at a window's edge are in the wider dtype.
  if (part.scalar_type() == sum_dtype_) settle(sum_dtype_);
  const bool is_new =
      stored_.move(sequences, tokens, [&](const mesh::Range& which, const mesh::Range& cleared) {
        block_of(rows_BNtH_, which, cleared).zero_();
      });
  const at::Tensor place = block_of(rows_BNtH_, sequences, tokens);
  const bool is_there = is_taken || part.const_data_ptr() == place.const_data_ptr();
  if (is_new && !is_there) combine_rows(place, {part});
  return is_new;
}

void BlockRows::join(const mesh::Range& sequences, const mesh::Range& tokens,
                     const at::Tensor& own_BNt, const WeightedRows& part) {
  if (!waits_.move(sequences, tokens, kNothing)) {
    settle(sum_dtype_);
    waits_.move(sequences, tokens, kNothing);
  }
  waiting_.push_back({sequences, tokens, own_BNt, part});
  // Where nothing is rounded later, waiting saves nothing.
  if (options_.dtype() == sum_dtype_) settle(sum_dtype_);
}

void BlockRows::scale(const at::Tensor& weight_BNt) {
  fill();
  if (!waiting_.empty()) settle(sum_dtype_);
  combine_rows(rows_BNtH_, {rows_BNtH_, weight_BNt});
}

// Adds what waits, and brings the rows to `dtype`.
void BlockRows::settle(at::ScalarType dtype) {
  const at::Tensor from = rows_BNtH_;
  const bool is_in_place = from.scalar_type() == dtype;
  if (is_in_place && waiting_.empty()) return;
  if (!is_in_place) rows_BNtH_ = empty_by_token(shape_, from.options().dtype(dtype));
  const auto convert = [&](const mesh::Range& sequences, const mesh::Range& tokens) {
    combine_rows(block_of(rows_BNtH_, sequences, tokens), {block_of(from, sequences, tokens)});
  };
  Frontier done(shape_[0]);
  for (const Waiting& block : std::exchange(waiting_, {})) {
    const at::Tensor to = block_of(rows_BNtH_, block.sequences, block.tokens);
    const at::Tensor own = is_in_place ? to : block_of(from, block.sequences, block.tokens);
    if (!is_in_place) done.move(block.sequences, block.tokens, convert);
    combine_rows(to, {own, block.own_BNt}, block.part);
  }
  if (!is_in_place) done.move({0, shape_[0]}, {shape_[2], 0}, convert);
  waits_ = Frontier(shape_[0]);
}

// Clears what no block has written.
void BlockRows::fill() {
  if (!rows_BNtH_.defined()) rows_BNtH_ = empty_by_token(shape_, options_);
  stored_.move({0, shape_[0]}, {shape_[2], 0},
               [&](const mesh::Range& which, const mesh::Range& cleared) {
                 block_of(rows_BNtH_, which, cleared).zero_();
               });
}

at::Tensor BlockRows::rows_BNtH(at::ScalarType dtype) {
  fill();
  settle(dtype);
  return rows_BNtH_;
}

at::Tensor BlockRows::exact_rows_BNtH() {
  fill();
  if (!waiting_.empty()) settle(sum_dtype_);
  return rows_BNtH_;
}

OnlineSoftmax::OnlineSoftmax(const at::Tensor& q_BNtH)
    : shape_(q_BNtH.sizes().vec()),
      dtype_(q_BNtH.scalar_type()),
      options_(q_BNtH.options().dtype(accumulation_dtype(dtype_))),
      out_(q_BNtH) {}

void OnlineSoftmax::allocate_lse() {
  if (lse_BNt_.defined()) return;
  constexpr double kNoKey = -std::numeric_limits<double>::infinity();
  lse_BNt_ = at::full({shape_[0], shape_[2], shape_[1]}, kNoKey, options_).transpose(1, 2);
}

void OnlineSoftmax::add(const AttentionBlock& block, const PartialAttention& part) {
  const auto& [sequences, queries, keys, reach] = block;
  const bool is_stored = out_.store(sequences, queries, part.out_BNtH);
  if (!lse_BNt_.defined() && out_.is_whole(part.out_BNtH)) {
    lse_BNt_ = part.lse_BNt;
    return;
  }
  allocate_lse();
  const at::Tensor lse = block_of(lse_BNt_, sequences, queries);
  if (is_stored) {
    lse.copy_(part.lse_BNt);
    return;
  }
  // logaddexp joins two parts without overflow, however large their scores.
  const at::Tensor sum = at::logaddexp(lse, part.lse_BNt);
  out_.join(sequences, queries, lse.sub(sum).exp_(), {part.out_BNtH, part.lse_BNt.sub(sum).exp_()});
  lse.copy_(sum);
}

void OnlineSoftmax::add_sinks(const at::Tensor& sinks_N) {
  allocate_lse();
  const at::Tensor sum = at::logaddexp(lse_BNt_, sinks_N.to(options_.dtype()).unsqueeze(-1));
  out_.scale((lse_BNt_ - sum).exp_());
  lse_BNt_ = sum;
}

at::Tensor OnlineSoftmax::out_BNtH() { return out_.rows_BNtH(dtype_); }

at::Tensor OnlineSoftmax::lse_BNt() {
  allocate_lse();
  return lse_BNt_;
}

BlockSum::BlockSum(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH)
    : rows_(like_BNtH, out_BNtH) {}

void BlockSum::add(const mesh::Range& sequences, const mesh::Range& tokens,
                   const at::Tensor& part) {
  if (!rows_.store(sequences, tokens, part)) rows_.join(sequences, tokens, {}, {part});
}

}  // namespace trireme::parallel
