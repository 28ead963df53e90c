#include "trireme/model/cache/key_cache.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/parallel/context/context_attention.h"

namespace trireme::model {
namespace {

// The keys of one kv head, and the scores of the queries that read it.
template <typename stored>
struct HeadPages {
  const stored* keys;    // of page 0 and this head
  const stored* values;  // likewise
  const int64_t* pages;
  int64_t page_stride;  // from one page to the next
  int64_t width;        // H
  int64_t begin;        // the tokens that are read: [begin, end)
  int64_t end;
  double scale;
  double softcap;  // 0: none
};

template <typename stored>
TRIREME_INLINE const stored* row_of(const stored* first, const HeadPages<stored>& head,
                                    int64_t token) {
  constexpr int64_t P = KeyCache::kPageTokens;
  return first + head.pages[token / P] * head.page_stride + token % P * head.width;
}

// What query heads add to their scores.
template <typename scalar>
struct Added {
  const scalar* sinks = nullptr;   // of each head; null: none
  const scalar* biases = nullptr;  // of each head, of the keys from `begin` on; null: none
  int64_t bias_stride = 0;         // from one head to the next
};

// The attention of `num` query heads at `q` to the keys of their kv head.
// added: of these query heads. scores: memory for num * (end - begin) numbers
template <typename stored, typename scalar = wide_t<stored>>
TRIREME_INLINE void attend_body(const HeadPages<stored>& head, const stored* q,
                                const Added<scalar>& added, int64_t num, scalar* scores,
                                scalar* sum_H, stored* out) {
  const int64_t S = head.end - head.begin, H = head.width;
  const auto scale = static_cast<scalar>(head.scale), cap = static_cast<scalar>(head.softcap);
  for (int64_t t = 0; t < S; ++t) {
    const stored* const key = row_of(head.keys, head, head.begin + t);
    for (int64_t n = 0; n < num; ++n) {
      const stored* const query = q + n * H;
      scores[n * S + t] =
          scale * lane_sum<scalar>(H, [&](int64_t i) { return widen(query[i]) * widen(key[i]); });
    }
  }
  for (int64_t n = 0; n < num; ++n) {
    scalar* const row = scores + n * S;
    if (cap > 0) {
      for (int64_t t = 0; t < S; ++t) row[t] = cap * std::tanh(row[t] / cap);
    }
    if (added.biases != nullptr) {
      const scalar* const biases = added.biases + n * added.bias_stride;
      for (int64_t t = 0; t < S; ++t) row[t] += biases[t];
    }
    const scalar* const sinks = added.sinks;
    scalar most = lane_max<scalar>(S, row);
    if (sinks != nullptr) most = std::max(most, sinks[n]);
    for (int64_t t = 0; t < S; ++t) row[t] = fast_exp(row[t] - most);
    scalar divisor = lane_sum<scalar>(S, [&](int64_t t) { return row[t]; });
    if (sinks != nullptr) divisor += fast_exp(sinks[n] - most);
    for (int64_t i = 0; i < H; ++i) sum_H[i] = 0;
    for (int64_t t = 0; t < S; ++t) {
      const stored* const value = row_of(head.values, head, head.begin + t);
      const scalar weight = row[t] / divisor;
      for (int64_t i = 0; i < H; ++i) sum_H[i] += weight * widen(value[i]);
    }
    for (int64_t i = 0; i < H; ++i) out[n * H + i] = narrow<stored>(sum_H[i]);
  }
}

#define TRIREME_CACHE_KERNEL(stored, scalar)                                                     \
  TRIREME_MULTIVERSION void attend_head(const HeadPages<stored>& head, const stored* q,          \
                                        const Added<scalar>& added, int64_t num, scalar* scores, \
                                        scalar* sum_H, stored* out) {                            \
    attend_body(head, q, added, num, scores, sum_H, out);                                        \
  }
TRIREME_CACHE_KERNEL(float, float)
TRIREME_CACHE_KERNEL(double, double)
TRIREME_CACHE_KERNEL(uint16_t, float)
#undef TRIREME_CACHE_KERNEL

// Where in [0, position] a query's keys begin.
int64_t first_key(const parallel::AttentionReach& reach, int64_t position) {
  return reach.window > 0 ? std::max<int64_t>(0, position + 1 - reach.window) : 0;
}

// Each query of a run on its own, by the kernel.
// Shapes: q_cNH [c, N, H] contiguous -> the same
template <typename type>
at::Tensor attend_by_kernel(const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<int64_t>& pages, const CachedRun& run,
                            const at::Tensor& q_cNH, const parallel::AttentionReach& reach) {
  using stored = stored_t<type>;
  using scalar = wide_t<stored>;
  const int64_t K = keys.size(1), N = q_cNH.size(1), H = q_cNH.size(2), num = N / K;
  const at::Tensor out_cNH = at::empty_like(q_cNH);
  const auto widened = [](const at::Tensor& all) {
    return all.defined() ? all.to(c10::CppTypeToScalarType<scalar>::value).contiguous() : all;
  };
  const at::Tensor sinks_N = widened(reach.sinks_N), bias_NR = widened(reach.distance_bias_NR);
  const auto at_head = [](const at::Tensor& all, int64_t head) -> const scalar* {
    return all.defined() ? all.const_data_ptr<scalar>() + head * all.stride(0) : nullptr;
  };
  const int64_t R = bias_NR.defined() ? bias_NR.size(1) : 0;
  const stored* const q = stored_in<type>(q_cNH);
  stored* const out = stored_out<type>(out_cNH);
  const stored* const all_keys = stored_in<type>(keys);
  const stored* const all_values = stored_in<type>(values);
  // About this many products are worth a thread.
  constexpr int64_t kGrain = 1 << 14;
  const int64_t work = std::max<int64_t>(1, (run.first + run.count) * num * H);
  at::parallel_for(
      0, run.count * K, std::max<int64_t>(1, kGrain / work), [&](int64_t i, int64_t end) {
        std::vector<scalar> scores(static_cast<size_t>(num * (run.first + run.count)));
        std::vector<scalar> sum_H(static_cast<size_t>(H));
        for (; i < end; ++i) {
          const int64_t token = i / K, kv = i % K, position = run.first + token;
          const int64_t head_offset = kv * KeyCache::kPageTokens * H;
          const HeadPages<stored> head{.keys = all_keys + head_offset,
                                       .values = all_values + head_offset,
                                       .pages = pages.data(),
                                       .page_stride = K * KeyCache::kPageTokens * H,
                                       .width = H,
                                       .begin = first_key(reach, position),
                                       .end = position + 1,
                                       .scale = reach.scores.scale_of(H),
                                       .softcap = reach.scores.softcap};
          Added<scalar> added{.sinks = at_head(sinks_N, kv * num),
                              .biases = at_head(bias_NR, kv * num),
                              .bias_stride = R};
          if (R > 0) added.biases += R / 2 + head.begin - position;
          const int64_t first = (token * N + kv * num) * H;
          attend_head(head, q + first, added, num, scores.data(), sum_H.data(), out + first);
        }
      });
  return out_cNH;
}

// The same of ATen's operators, for any device and dtype.
at::Tensor attend_composed(const at::Tensor& keys, const at::Tensor& values,
                           const std::vector<int64_t>& pages, const CachedRun& run,
                           const at::Tensor& q_cNH, const parallel::AttentionReach& reach) {
  const int64_t K = keys.size(1), H = q_cNH.size(2);
  const at::ScalarType wide = q_cNH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor index = at::tensor(pages, at::kLong).to(keys.device());
  const auto of_text = [&](const at::Tensor& all) {
    return all.index_select(0, index).transpose(0, 1).reshape({K, -1, H}).to(wide);
  };
  const at::Tensor keys_KSH = of_text(keys), values_KSH = of_text(values);
  std::vector<at::Tensor> out;
  for (int64_t token = 0; token < run.count; ++token) {
    const int64_t end = run.first + token + 1, begin = first_key(reach, end - 1);
    const at::Tensor q_KgH = q_cNH.select(0, token).to(wide).view({K, -1, H});
    at::Tensor scores_Kgs =
        q_KgH.matmul(keys_KSH.slice(1, begin, end).transpose(1, 2)) * reach.scores.scale_of(H);
    const double cap = reach.scores.softcap;
    if (cap > 0) scores_Kgs = cap * at::tanh(scores_Kgs / cap);
    if (reach.distance_bias_NR.defined()) {
      const at::Tensor bias_KgR = reach.distance_bias_NR.to(wide).unflatten(0, {K, -1});
      scores_Kgs =
          scores_Kgs + bias_KgR.narrow(2, bias_KgR.size(2) / 2 + begin + 1 - end, end - begin);
    }
    if (reach.sinks_N.defined())
      scores_Kgs = at::cat({scores_Kgs, reach.sinks_N.to(wide).view({K, -1, 1})}, 2);
    const at::Tensor weights_Kgs = scores_Kgs.softmax(2).slice(2, 0, end - begin);
    out.push_back(weights_Kgs.matmul(values_KSH.slice(1, begin, end)).flatten(0, 1));
  }
  return at::stack(out).to(q_cNH.scalar_type());
}

}  // namespace

int64_t KeyCache::add_text() {
  const auto found = std::ranges::find(texts_, true, &Text::is_free);
  if (found == texts_.end()) {
    texts_.emplace_back();
    return std::ssize(texts_) - 1;
  }
  *found = {};
  return found - texts_.begin();
}

void KeyCache::remove_text(int64_t text) {
  Text& one = texts_.at(static_cast<size_t>(text));
  free_pages_.insert(free_pages_.end(), one.pages.begin(), one.pages.end());
  one = {.is_free = true};
}

CachedRun KeyCache::extend(int64_t text, int64_t count) {
  Text& one = texts_.at(static_cast<size_t>(text));
  TRIREME_ASSERT(count > 0 && !one.is_free, count, " tokens of text ", text);
  const CachedRun run{.text = text, .first = one.length, .count = count};
  one.length += count;
  while (std::ssize(one.pages) * kPageTokens < one.length) {
    if (free_pages_.empty()) free_pages_.push_back(pages_made_++);
    one.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  return run;
}

int64_t KeyCache::num_pages() const { return pages_made_ - std::ssize(free_pages_); }

int64_t KeyCache::bytes() const {
  size_t sum = 0;
  for (const auto& [address, layer] : layers_) sum += layer.keys.nbytes() + layer.values.nbytes();
  return static_cast<int64_t>(sum);
}

KeyCache::Layer& KeyCache::room_for(const void* layer, const at::Tensor& k_1nG, int64_t kv_heads) {
  Layer& found = layers_[layer];
  const int64_t has = found.keys.defined() ? found.keys.size(0) : 0;
  if (has >= pages_made_) return found;
  const std::vector<int64_t> shape = {std::max(pages_made_, 2 * has), kv_heads, kPageTokens,
                                      k_1nG.size(2) / kv_heads};
  for (at::Tensor* const pages : {&found.keys, &found.values}) {
    const at::Tensor more = at::empty(shape, k_1nG.options());
    if (has > 0) more.narrow(0, 0, has).copy_(*pages);
    *pages = more;
  }
  return found;
}

void KeyCache::store(Layer& layer, const CachedRun& run, const at::Tensor& k_nKH,
                     const at::Tensor& v_nKH) const {
  const std::vector<int64_t>& pages = texts_[static_cast<size_t>(run.text)].pages;
  for (int64_t done = 0; done < run.count;) {
    const int64_t position = run.first + done, place = position % kPageTokens;
    const int64_t count = std::min(run.count - done, kPageTokens - place);
    const int64_t page = pages[static_cast<size_t>(position / kPageTokens)];
    const auto put = [&](const at::Tensor& all, const at::Tensor& x_nKH) {
      all.select(0, page)
          .narrow(1, place, count)
          .copy_(x_nKH.narrow(0, done, count).transpose(0, 1));
    };
    put(layer.keys, k_nKH);
    put(layer.values, v_nKH);
    done += count;
  }
}

at::Tensor KeyCache::read_one(const Layer& layer, const CachedRun& run, const at::Tensor& q_cNH,
                              const parallel::AttentionReach& reach) const {
  const std::vector<int64_t>& pages = texts_[static_cast<size_t>(run.text)].pages;
  const auto with = [&](const auto& attend) {
    return attend(layer.keys, layer.values, pages, run, q_cNH.contiguous(), reach);
  };
  if (q_cNH.is_cpu() && q_cNH.scalar_type() == at::kFloat) return with(attend_by_kernel<float>);
  if (q_cNH.is_cpu() && q_cNH.scalar_type() == at::kDouble) return with(attend_by_kernel<double>);
  if (q_cNH.is_cpu() && q_cNH.scalar_type() == at::kBFloat16)
    return with(attend_by_kernel<at::BFloat16>);
  return with(attend_composed);
}

at::Tensor KeyCache::attend(const void* layer, const at::Tensor& q_1nD, const at::Tensor& k_1nG,
                            const at::Tensor& v_1nG, int64_t heads, int64_t kv_heads,
                            const parallel::AttentionReach& reach,
                            const std::vector<CachedRun>& runs) {
  TRIREME_ASSERT(q_1nD.size(0) == 1 && reach.causal && !reach.documents_BT.defined() && !reach.keys,
                 "attention that a cache does not know");
  Layer& pages = room_for(layer, k_1nG, kv_heads);
  const at::Tensor k_nKH = k_1nG.squeeze(0).unflatten(1, {kv_heads, -1});
  const at::Tensor v_nKH = v_1nG.squeeze(0).unflatten(1, {kv_heads, -1});
  std::vector<at::Tensor> out;
  int64_t row = 0;
  for (const CachedRun& run : runs) {
    store(pages, run, k_nKH.narrow(0, row, run.count), v_nKH.narrow(0, row, run.count));
    const auto own = [&](const at::Tensor& x) { return x.narrow(1, row, run.count); };
    if (run.first == 0) {
      out.push_back(
          parallel::whole_attention(own(q_1nD), own(k_1nG), own(v_1nG), heads, kv_heads, reach));
    } else {
      const at::Tensor q_cNH = own(q_1nD).squeeze(0).unflatten(1, {heads, -1});
      out.push_back(read_one(pages, run, q_cNH, reach).flatten(1).unsqueeze(0));
    }
    row += run.count;
  }
  TRIREME_ASSERT(row == q_1nD.size(1), row, " cached tokens of ", q_1nD.size(1));
  if (out.empty()) return v_1nG.new_empty({1, 0, heads * v_nKH.size(2)});
  return out.size() == 1 ? out.front() : at::cat(out, 1);
}

void KeyCache::set_memory(int64_t text, at::Tensor memory_1SD) {
  texts_.at(static_cast<size_t>(text)).memory_1SD = std::move(memory_1SD);
}

const KeyCache::KeysAndValues& KeyCache::of_memory(
    const void* layer, int64_t text, const std::function<KeysAndValues(const at::Tensor&)>& make) {
  Text& one = texts_.at(static_cast<size_t>(text));
  TRIREME_ASSERT(one.memory_1SD.defined(), "text ", text, " has no prompt");
  const auto found = one.of_memory.find(layer);
  if (found != one.of_memory.end()) return found->second;
  return one.of_memory.emplace(layer, make(one.memory_1SD)).first->second;
}

int64_t CachedTokens::longest() const {
  int64_t most = 0;
  for (const CachedRun& run : runs) most = std::max(most, run.first + run.count);
  return most;
}

int64_t CachedTokens::num_tokens() const {
  int64_t sum = 0;
  for (const CachedRun& run : runs) sum += run.count;
  return sum;
}

at::Tensor CachedTokens::positions(at::Device device) const {
  std::vector<at::Tensor> parts = {at::empty({0}, at::kLong)};
  for (const CachedRun& run : runs)
    parts.push_back(at::arange(run.first, run.first + run.count, at::kLong));
  return at::cat(parts).to(device);
}

at::Tensor CachedTokens::last_rows(at::Device device) const {
  std::vector<int64_t> rows;
  int64_t end = 0;
  for (const CachedRun& run : runs) rows.push_back((end += run.count) - 1);
  return at::tensor(rows, at::kLong).to(device);
}

}  // namespace trireme::model
