#include "trireme/cli/language/served_runs.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/cli/language/completion_answer.h"
#include "trireme/cli/language/completion_run.h"

namespace trireme::cli {
namespace {

// Other ranks wait for the next request no longer than this, so that no timeout ends them.
constexpr std::chrono::seconds kBetweenSigns{1};

// What rank 0 tells the others: a word and, of a request, its number; behind a line end its body.
constexpr const char* kNothing = "nothing";
constexpr const char* kStop = "stop";
constexpr const char* kBegin = "begin";
constexpr const char* kStep = "step";
constexpr const char* kScore = "score";
constexpr const char* kForget = "forget";

struct Told {
  std::string_view word;
  size_t number = 0;
  std::string_view body;
};

Told read_told(std::string_view text) {
  Told told;
  const size_t line = text.find('\n');
  if (line != text.npos) told.body = text.substr(line + 1);
  const std::string_view head = text.substr(0, line);
  told.word = head.substr(0, head.find(' '));
  if (told.word.size() < head.size())
    std::from_chars(head.data() + told.word.size() + 1, head.data() + head.size(), told.number);
  return told;
}

}  // namespace

struct ServedRuns::Place {
  size_t number = 0;
  CompletionRequest request;
  CompletionAnswer answer;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  std::unique_ptr<CompletionRun> run{};  // none: it waits
  bool is_answered = false;
  bool is_over = false;  // also when the client has gone
};

class ServedRuns::Pieces : public comm::HttpPieces {
 public:
  Pieces(ServedRuns& runs, std::shared_ptr<Place> place) : runs_(runs), place_(std::move(place)) {}
  ~Pieces() override { place_->is_over = true; }

  comm::HttpPiece next() override { return runs_.next(*place_); }

 private:
  ServedRuns& runs_;
  std::shared_ptr<Place> place_;
};

ServedRuns::ServedRuns(const AskedModel& asked, std::string model)
    : asked_(asked), model_(std::move(model)) {}
ServedRuns::~ServedRuns() = default;

void ServedRuns::tell(const std::string& what) {
  asked_.share(what);
  last_sign_ = std::chrono::steady_clock::now();
}

comm::HttpResponse ServedRuns::answer(CompletionRequest request) {
  const size_t number = ++num_requests_;
  const std::string id = concat(request.is_chat ? "chatcmpl-" : "cmpl-", number);
  const bool streams = request.streams;
  auto place = std::make_shared<Place>(
      Place{.number = number,
            .request = std::move(request),
            .answer = CompletionAnswer(*asked_.trained.tokenizer, model_, id)});
  places_.push_back(place);
  comm::HttpResponse response{.pieces = std::make_shared<Pieces>(*this, std::move(place)),
                              .is_sent_whole = !streams};
  if (streams) {
    response.type = "text/event-stream";
    response.headers = {{"Cache-Control", "no-cache"}};
  }
  return response;
}

void ServedRuns::look() {
  forget_ended();
  if (std::chrono::steady_clock::now() - last_sign_ > kBetweenSigns) tell(kNothing);
}

void ServedRuns::stop() {
  places_.clear();
  tell(kStop);
}

void ServedRuns::forget_ended() {
  for (const std::shared_ptr<Place>& place : places_) {
    if (!place->is_over) continue;
    const size_t num_tokens = place->run ? place->run->num_tokens() : 0;
    std::printf("request %zu prompts, %zu new tokens in %.2f s%s\n", place->request.prompts.size(),
                num_tokens, seconds_since(place->since),
                place->is_answered ? "" : ", and its client has gone");
    std::fflush(stdout);
    if (place->run) tell(concat(kForget, " ", place->number));
  }
  std::erase_if(places_, [](const auto& place) { return place->is_over; });
}

bool ServedRuns::is_in_turn(const Place& place) const {
  const size_t count = std::min(places_.size(), kMostRuns);
  return std::any_of(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](const auto& each) { return each.get() == &place; });
}

comm::HttpPiece ServedRuns::next(Place& place) {
  forget_ended();
  if (!is_in_turn(place)) return {.then = comm::HttpPiece::Then::kLater};
  try {
    return grow(place);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    // Other ranks may be elsewhere in the request now.
    throw InternalError(concat("a request failed: ", error.what()));
  }
}

comm::HttpPiece ServedRuns::grow(Place& place) {
  const bool streams = place.request.streams;
  comm::HttpPiece piece;
  if (!place.run) {
    tell(concat(kBegin, " ", place.number, "\n", place.request.body));
    place.run = std::make_unique<CompletionRun>(asked_, place.request);
    if (streams) piece.bytes = place.answer.begin(*place.run);
  }
  CompletionRun& run = *place.run;
  tell(concat(kStep, " ", place.number));
  const std::vector<CompletionPiece> pieces = run.step();
  if (streams) piece.bytes += place.answer.events(run, pieces);
  if (!run.has_ended()) return piece;
  if (run.request().has_scores) {
    tell(concat(kScore, " ", place.number));
    run.score();
  }
  piece.bytes += streams ? place.answer.end(run) : place.answer.whole(run);
  piece.then = comm::HttpPiece::Then::kEnd;
  place.is_answered = true;
  return piece;
}

void ServedRuns::follow() {
  std::map<size_t, std::unique_ptr<CompletionRun>> runs;
  for (;;) {
    const std::string text = asked_.share("");
    const Told told = read_told(text);
    if (told.word == kStop) return;
    if (told.word == kNothing) continue;
    if (told.word == kBegin) {
      runs[told.number] = std::make_unique<CompletionRun>(
          asked_, read_completion_request(told.body, asked_.trained));
    } else if (told.word == kForget) {
      runs.erase(told.number);
    } else if (told.word == kStep) {
      runs.at(told.number)->step();
    } else {
      runs.at(told.number)->score();
    }
  }
}

}  // namespace trireme::cli
