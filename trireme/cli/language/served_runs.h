// Requests for completions that are answered at the same time by the ranks that share a model: each
// draws a token in turn. The first rank takes the requests and tells the others what comes next.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/completion_request.h"
#include "trireme/comm/net/http_message.h"

namespace trireme::cli {

class ServedRuns {
 public:
  // Requests that grow at the same time, each with its keys and values. More wait.
  static constexpr size_t kMostRuns = 8;

  // asked: outlives this. model: its name
  ServedRuns(const AskedModel& asked, std::string model);
  ~ServedRuns();

  // On the rank that prints. The result must not outlive this. Its destructor ends the request,
  // whose memory is given back with the next call of look() or piece.
  comm::HttpResponse answer(CompletionRequest request);
  // Tells the others, often enough, that there is nothing to do, and forgets requests whose clients
  // have gone.
  void look();
  // Ends follow() on all other ranks.
  void stop();

  // On all other ranks, until stop().
  void follow();

 private:
  struct Place;
  class Pieces;

  void tell(const std::string& what);
  void forget_ended();
  bool is_in_turn(const Place& place) const;
  comm::HttpPiece next(Place& place);
  comm::HttpPiece grow(Place& place);

  const AskedModel& asked_;
  std::string model_;
  size_t num_requests_ = 0;
  std::vector<std::shared_ptr<Place>> places_;  // in the order in which they came
  std::chrono::steady_clock::time_point last_sign_ = std::chrono::steady_clock::now();
};

}  // namespace trireme::cli
