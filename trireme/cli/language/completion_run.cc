#include "trireme/cli/language/completion_run.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

std::string to_line(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

std::string line_of(const CompletionPiece& piece) {
  return to_line({{"number", piece.number},
                  {"tokens", piece.tokens},
                  {"text", piece.text},
                  {"ended", piece.has_ended},
                  {"cut", piece.is_cut}});
}

CompletionPiece piece_of(const std::string& line) {
  const auto value = nlohmann::json::parse(line);
  return {.number = value.at("number"),
          .tokens = value.at("tokens"),
          .text = value.at("text"),
          .has_ended = value.at("ended"),
          .is_cut = value.at("cut")};
}

}  // namespace

CompletionRun::CompletionRun(const AskedModel& asked, CompletionRequest request)
    : asked_(asked),
      request_(std::move(request)),
      completions_(request_.prompts.size()),
      growing_(request_.prompts.size(), Growing{.stop = StopText(request_.stops)}) {
  generation_ = std::make_unique<model::TextGeneration>(
      asked.model, request_.prompts, request_.options,
      [this](size_t number, int64_t token) { return add_token(number, token); },
      [this](size_t number, std::span<const int64_t> tokens) { end_text(number, tokens.size()); });
}

size_t CompletionRun::num_tokens() const {
  size_t count = 0;
  for (const Completion& completion : completions_) count += completion.tokens.size();
  return count;
}

bool CompletionRun::add_token(size_t number, int64_t token) {
  const auto id = static_cast<int32_t>(token);
  Growing& growing = growing_[number];
  CompletionPiece& piece = new_[number];
  piece.tokens.push_back(token);
  piece.text += growing.whole.add(growing.stop.add(asked_.trained.tokenizer->decode({&id, 1})));
  return !growing.stop.has_ended();
}

void CompletionRun::end_text(size_t number, size_t num_tokens) {
  Growing& growing = growing_[number];
  CompletionPiece& piece = new_[number];
  piece.text += growing.whole.add(growing.stop.finish()) + growing.whole.finish();
  piece.has_ended = true;
  piece.is_cut =
      !growing.stop.has_ended() && num_tokens == static_cast<size_t>(request_.options.max_tokens);
}

void CompletionRun::note(const CompletionPiece& piece) {
  Completion& completion = completions_.at(piece.number);
  completion.tokens.insert(completion.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  completion.text += piece.text;
  completion.has_ended = piece.has_ended;
  completion.is_cut = piece.is_cut;
  if (piece.has_ended) ++num_ended_;
}

std::vector<CompletionPiece> CompletionRun::step() {
  generation_->step();
  std::vector<CompletionPiece> pieces;
  for (auto& [number, piece] : std::exchange(new_, {})) {
    piece.number = number;
    pieces.push_back(std::move(piece));
  }
  if (asked_.model.num_copies() > 1) {
    std::string mine;
    for (const CompletionPiece& piece : pieces) mine += line_of(piece);
    const std::vector<std::string> lines = asked_.gather(mine);
    if (asked_.prints) {
      pieces.clear();
      for (const std::string& line : lines) pieces.push_back(piece_of(line));
      std::ranges::sort(pieces, {}, &CompletionPiece::number);
    }
  }
  for (const CompletionPiece& piece : pieces) note(piece);
  return asked_.prints ? pieces : std::vector<CompletionPiece>();
}

void CompletionRun::score() {
  std::vector<model::AskedText> texts(request_.prompts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int64_t>& drawn = completions_[i].tokens;
    texts[i].tokens = request_.prompts[i];
    texts[i].tokens.insert(texts[i].tokens.end(), drawn.begin(), drawn.end());
    texts[i].first = request_.echoes ? 1 : request_.prompts[i].size();
  }
  std::string mine;
  model::score_texts(asked_.model, texts, [&](size_t number, auto scores) {
    completions_[number].scores.assign(scores.begin(), scores.end());
    ordered_json values = ordered_json::array();
    for (const model::TokenScore& score : scores)
      values.push_back({score.log_probability, score.likeliest, score.likeliest_log_probability});
    mine += to_line({{"number", number}, {"scores", values}});
  });
  if (asked_.model.num_copies() == 1) return;
  for (const std::string& line : asked_.gather(mine)) {
    const auto text = nlohmann::json::parse(line);
    std::vector<model::TokenScore>& scores = completions_.at(text.at("number")).scores;
    scores.clear();
    for (const auto& score : text.at("scores")) scores.push_back({score[0], score[1], score[2]});
  }
}

}  // namespace trireme::cli
