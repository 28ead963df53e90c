#include "trireme/model/text_generation.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/model/cache/key_cache.h"

namespace trireme::model {
namespace {

void check_options(const GenerateOptions& options) {
  TRIREME_CHECK(options.max_tokens >= 0, "the number of tokens is ", options.max_tokens,
                "; expected at least 0");
  TRIREME_CHECK(options.temperature >= 0, "temperature is ", options.temperature,
                "; expected at least 0");
  TRIREME_CHECK(options.top_k >= 0, "top-k is ", options.top_k, "; expected at least 0");
  TRIREME_CHECK(options.top_p > 0 && options.top_p <= 1, "top-p is ", options.top_p,
                "; expected above 0 and at most 1");
  TRIREME_CHECK(options.repetition_penalty > 0, "the repetition penalty is ",
                options.repetition_penalty, "; expected above 0, such as 1.1, or 1 for none");
  TRIREME_CHECK(options.texts_at_once >= 1, "the number of texts at once is ",
                options.texts_at_once, "; expected at least 1");
}

void check_prompts(const TextModel& model, std::span<const std::vector<int64_t>> prompts) {
  const VisionConfig& vision = model.config().vision;
  for (const std::vector<int64_t>& prompt : prompts) {
    TRIREME_CHECK(!prompt.empty(), "the prompt has no tokens; expected at least one");
    TRIREME_CHECK(!vision.is_on() || std::ranges::find(prompt, vision.image_token) == prompt.end(),
                  "the prompt has the image token ", vision.image_token,
                  ", and generation reads text only; leave it out");
  }
}

struct Text {
  size_t number = 0;  // of its prompt
  RandomKey key{};
  std::vector<int64_t> tokens;    // of the prompt, or what a decoder reads first; and those drawn
  std::vector<int64_t> prompt{};  // of an encoder
  int64_t drawn = 0;
  int64_t kept = -1;  // its number in the cache; -1: it has none
};

void penalise(const at::Tensor& logits_V, std::span<const int64_t> text, double penalty) {
  if (penalty == 1) return;
  const at::Tensor index = std::get<0>(at::_unique(at::tensor(text, at::kLong)));
  const at::Tensor found = logits_V.index_select(0, index);
  logits_V.index_copy_(0, index, at::where(found > 0, found / penalty, found * penalty));
}

}  // namespace

class TextGeneration::Texts {
 public:
  Texts(TextModel& model, std::span<const std::vector<int64_t>> prompts, GenerateOptions options,
        OnToken on_token, OnText on_text)
      : model_(model),
        decodes_(model.config().has_decoder()),
        options_(std::move(options)),
        on_token_(std::move(on_token)),
        on_text_(std::move(on_text)) {
    check_options(options_);
    check_prompts(model, prompts);
    for (size_t i = model.copy(); i < prompts.size(); i += model.num_copies()) {
      Text text{.number = i,
                .key = random_key(options_.seed, i == 0 ? "generate" : concat("generate/", i)),
                .tokens = prompts[i]};
      if (decodes_) text.prompt = std::exchange(text.tokens, {options_.decoder_start});
      waiting_.push_back(std::move(text));
    }
  }

  bool step() {
    const c10::NoGradGuard no_grad;
    if (options_.max_tokens == 0) {
      for (const Text& text : std::exchange(waiting_, {})) end(text);
      return false;
    }
    while (!waiting_.empty() && std::ssize(growing_) < options_.texts_at_once) {
      growing_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    const auto ended = draw_tokens(growing_);
    if (!ended) return false;
    for (size_t i = ended->size(); i-- > 0;) {
      Text& text = growing_[(*ended)[i]];
      forget(text);
      end(text);
      growing_.erase(growing_.begin() + static_cast<std::ptrdiff_t>((*ended)[i]));
    }
    return true;
  }

 private:
  void end(const Text& text) const {
    if (on_text_)
      on_text_(text.number, std::span(text.tokens).last(static_cast<size_t>(text.drawn)));
  }

  // Draws the next token of each text, if there are any. Returns those that have ended; nothing
  // when all copies of the model have no text left.
  std::optional<std::vector<size_t>> draw_tokens(std::vector<Text>& texts) {
    std::vector<TokenGroup> groups;
    std::vector<size_t> first;    // text of each group
    std::vector<size_t> passing;  // texts that do not stay in the cache
    for (size_t begin = 0; begin < texts.size();) {
      first.push_back(begin);
      begin = add_group(texts, begin, groups, passing);
    }
    const int64_t num_groups = model_.num_groups(std::ssize(groups));
    if (num_groups == 0) return std::nullopt;
    while (std::ssize(groups) < num_groups) groups.push_back(empty_group());
    const std::vector<int64_t> drawn =
        model_.next_tokens(groups, [&](size_t group, size_t run, const at::Tensor& logits_V) {
          return draw(texts[first[group] + run], logits_V);
        });
    for (const size_t i : passing) forget(texts[i]);
    std::vector<size_t> ended;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!add(texts[i], drawn[i])) ended.push_back(i);
    }
    return ended;
  }

  void forget(Text& text) {
    if (text.kept >= 0) cache_->remove_text(text.kept);
    text.kept = -1;
  }

  TokenGroup empty_group() const {
    return {std::make_shared<CachedTokens>(CachedTokens{cache_, {}}), at::empty({1, 0}, at::kLong)};
  }

  // Of what is new of some texts from `begin` on; returns the end of them.
  size_t add_group(std::vector<Text>& texts, size_t begin, std::vector<TokenGroup>& groups,
                   std::vector<size_t>& passing) {
    auto cached = std::make_shared<CachedTokens>(CachedTokens{cache_, {}});
    std::vector<int64_t> tokens;
    const int64_t num_groups = model_.groups_at_once();
    const auto most_texts = static_cast<size_t>((std::ssize(texts) + num_groups - 1) / num_groups);
    size_t end = begin;
    for (; end < texts.size() && end - begin < most_texts; ++end) {
      Text& text = texts[end];
      // The positions of a model with a decoder are distances, of any number of tokens.
      const int64_t most =
          decodes_ ? std::numeric_limits<int64_t>::max() : model_.config().sequence_length;
      const auto length = static_cast<int64_t>(text.tokens.size());
      const bool fits = length <= most && options_.keeps_keys;
      const int64_t count = !fits ? std::min(length, most) : text.kept >= 0 ? 1 : length;
      if (end > begin && std::ssize(tokens) + count > kTokensAtOnce) break;
      if (!fits) {
        forget(text);
        passing.push_back(end);
      }
      if (text.kept < 0) text.kept = cache_->add_text();
      cached->runs.push_back(cache_->extend(text.kept, count));
      const bool begins = decodes_ && cached->runs.back().first == 0;
      cached->prompts.push_back(begins ? at::tensor(text.prompt, at::kLong).unsqueeze(0)
                                       : at::Tensor());
      tokens.insert(tokens.end(), text.tokens.end() - count, text.tokens.end());
    }
    groups.push_back({std::move(cached), at::tensor(tokens, at::kLong).unsqueeze(0)});
    return end;
  }

  int64_t draw(const Text& text, const at::Tensor& logits_V) const {
    const VisionConfig& vision = model_.config().vision;
    if (vision.is_on()) logits_V[vision.image_token] = -std::numeric_limits<double>::infinity();
    penalise(logits_V, text.tokens, options_.repetition_penalty);
    const double uniform = random_uniform(text.key, static_cast<uint64_t>(text.drawn));
    return sample_token(logits_V, options_, uniform);
  }

  // Whether the text goes on.
  bool add(Text& text, int64_t token) const {
    if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end()) return false;
    text.tokens.push_back(token);
    ++text.drawn;
    const bool goes_on = !on_token_ || on_token_(text.number, token);
    return goes_on && text.drawn < options_.max_tokens;
  }

  TextModel& model_;
  const bool decodes_;  // texts behind prompts that an encoder reads
  const GenerateOptions options_;
  const OnToken on_token_;
  const OnText on_text_;
  std::deque<Text> waiting_;
  std::vector<Text> growing_;
  std::shared_ptr<KeyCache> cache_ = std::make_shared<KeyCache>();
};

TextGeneration::TextGeneration(TextModel& model, std::span<const std::vector<int64_t>> prompts,
                               GenerateOptions options, OnToken on_token, OnText on_text)
    : texts_(std::make_unique<Texts>(model, prompts, std::move(options), std::move(on_token),
                                     std::move(on_text))) {}
TextGeneration::~TextGeneration() = default;

bool TextGeneration::step() { return texts_->step(); }

}  // namespace trireme::model
