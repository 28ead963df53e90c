#include "trireme/model/generate.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"

namespace trireme::model {

int64_t sample_token(const at::Tensor& logits_V, const GenerateOptions& options, double uniform) {
  at::Tensor logits = logits_V.detach().to(at::kDouble).contiguous();
  if (options.vocab_limit > 0 && options.vocab_limit < logits.numel()) {
    logits = logits.narrow(0, 0, options.vocab_limit);
  }
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  // The likeliest first. Ties are in the order of the tokens.
  const auto [sorted, tokens] = logits.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor probabilities = at::softmax(sorted / options.temperature, 0);
  const auto* p = probabilities.const_data_ptr<double>();
  int64_t kept = probabilities.numel();
  if (options.top_k > 0) kept = std::min(kept, options.top_k);
  double mass = 0;
  for (int64_t i = 0; i < kept; ++i) {
    mass += p[i];
    if (mass >= options.top_p) kept = i + 1;
  }
  double left = uniform * mass;
  int64_t chosen = 0;
  while (chosen + 1 < kept && left >= p[chosen]) left -= p[chosen++];
  return tokens[chosen].item<int64_t>();
}

std::vector<int64_t> generate(LanguageModel& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int64_t)>& on_token) {
  TRIREME_CHECK(!prompt.empty(), "the prompt has no tokens; expected at least one");
  TRIREME_CHECK(options.max_tokens >= 0, "the number of tokens is ", options.max_tokens,
                "; expected at least 0");
  TRIREME_CHECK(options.temperature >= 0, "temperature is ", options.temperature,
                "; expected at least 0");
  TRIREME_CHECK(options.top_k >= 0, "top-k is ", options.top_k, "; expected at least 0");
  TRIREME_CHECK(options.top_p > 0 && options.top_p <= 1, "top-p is ", options.top_p,
                "; expected above 0 and at most 1");
  const c10::NoGradGuard no_grad;
  const RandomKey key = random_key(options.seed, "generate");
  std::vector<int64_t> text(prompt.begin(), prompt.end());
  std::vector<int64_t> drawn;
  while (std::ssize(drawn) < options.max_tokens) {
    const int64_t length = std::min<int64_t>(std::ssize(text), model.config().sequence_length);
    const at::Tensor tokens_BT =
        at::from_blob(text.data() + text.size() - length, {1, length}, at::kLong);
    const at::Tensor logits_V = model.logits(tokens_BT).select(0, 0).select(0, length - 1);
    const int64_t token = sample_token(logits_V, options, random_uniform(key, drawn.size()));
    if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) break;
    text.push_back(token);
    drawn.push_back(token);
    if (on_token) on_token(token);
  }
  return drawn;
}

}  // namespace trireme::model
