// The keys and values of the tokens that a causal model has read, so that the next token of a text
// computes its own only. They lie in pages of a fixed number of tokens, which texts take as they
// grow and give back when they end.
// Source: pages: Kwon et al. 2023, arXiv:2309.06180, section 4
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/sequence_split.h"

namespace trireme::model {

// Tokens of one text that a forward reads: those at positions [first, first + count).
struct CachedRun {
  int64_t text = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Not thread safe.
class KeyCache {
 public:
  static constexpr int64_t kPageTokens = 32;

  // The number of a new text without tokens.
  int64_t add_text();
  // Gives its pages back. Another text may get its number.
  void remove_text(int64_t text);
  int64_t length(int64_t text) const { return texts_.at(text).length; }
  // Makes room for `count` more tokens of a text, which the next forward must read.
  CachedRun extend(int64_t text, int64_t count);
  // Pages that texts have, and bytes of all pages of all layers.
  int64_t num_pages() const;
  int64_t bytes() const;

  // Stores the keys and values of a layer for the tokens of `runs`, one run after the other, and
  // returns the attention of their queries: each reads the tokens of its text up to itself. A run
  // that begins a text has the bits of attention without a cache. There may be no run.
  // layer: any address that no other layer has
  // reach: window, scores, sinks and biases of distances
  // Shapes: q [1, n, N * H], k and v [1, n, K * H] -> [1, n, N * H]
  at::Tensor attend(const void* layer, const at::Tensor& q_1nD, const at::Tensor& k_1nG,
                    const at::Tensor& v_1nG, int64_t heads, int64_t kv_heads,
                    const parallel::AttentionReach& reach, const std::vector<CachedRun>& runs);

  using KeysAndValues = std::pair<at::Tensor, at::Tensor>;
  // Of a decoder: what its encoder has made of a text's prompt, [1, S, D].
  void set_memory(int64_t text, at::Tensor memory_1SD);
  // The keys and values of a layer that reads it, which `make` makes of it the first time.
  const KeysAndValues& of_memory(const void* layer, int64_t text,
                                 const std::function<KeysAndValues(const at::Tensor&)>& make);

 private:
  struct Text {
    std::vector<int64_t> pages{};
    int64_t length = 0;
    bool is_free = false;
    at::Tensor memory_1SD{};
    std::unordered_map<const void*, KeysAndValues> of_memory{};
  };
  // [pages, K, kPageTokens, H]
  struct Layer {
    at::Tensor keys;
    at::Tensor values;
  };

  Layer& room_for(const void* layer, const at::Tensor& k_1nG, int64_t kv_heads);
  void store(Layer& layer, const CachedRun& run, const at::Tensor& k_nKH,
             const at::Tensor& v_nKH) const;
  at::Tensor read_one(const Layer& layer, const CachedRun& run, const at::Tensor& q_cNH,
                      const parallel::AttentionReach& reach) const;

  std::vector<Text> texts_;
  std::vector<int64_t> free_pages_;
  int64_t pages_made_ = 0;
  std::unordered_map<const void*, Layer> layers_;
};

// What a forward reads of a cache.
struct CachedTokens {
  std::shared_ptr<KeyCache> cache;
  std::vector<CachedRun> runs;
  // Of a decoder: what its encoder reads before run i, [1, S] int64; undefined if it has.
  std::vector<at::Tensor> prompts{};
  int64_t num_tokens() const;
  // The tokens that the texts have behind this forward, of the longest.
  int64_t longest() const;
  // [n] int64, of the tokens in the order of the runs.
  at::Tensor positions(at::Device device) const;
  // [runs] int64: the last token of each.
  at::Tensor last_rows(at::Device device) const;
};

}  // namespace trireme::model
