// A connection to the server of http_server.h: receives requests, one after the other, and sends
// the answers. It never blocks and keeps a bounded number of bytes. Not thread safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/file/file.h"
#include "trireme/comm/net/http_message.h"

namespace trireme::comm {

// What `work` answers. Of what it throws, an error: of a ConfigError with status 400, of another
// with 500.
// Throws: InternalError and CommError of `work`
HttpResponse answer_or_error(const std::function<HttpResponse()>& work);

class HttpConnection {
  using Clock = std::chrono::steady_clock;

 public:
  struct Options {
    HttpLimits limits{};
    std::chrono::milliseconds patience{5000};
  };
  // The server, as a connection sees it.
  struct Server {
    std::function<HttpResponse(const HttpRequest& request)> answer;
    // The answer to a request that may not come in, asked before its body is received. None: all
    // may.
    std::function<std::optional<HttpResponse>(const HttpRequest& request)> refuse{};
    // Spent in answers and pieces so far, while all connections waited.
    std::chrono::steady_clock::duration worked{};
  };

  // socket: non-blocking
  HttpConnection(Descriptor socket, const Options& options);

  int fd() const { return socket_.get(); }
  // Of poll(), to wait for.
  short events() const;
  // Whether serve() has something to do at once, without an event.
  bool has_work() const;
  bool is_between_requests() const {
    return !is_busy() && !is_draining_ && received_.empty() && !may_have_bytes_;
  }
  // Whether it neither waits for an answer nor has sent anything for so long.
  bool is_silent(std::chrono::steady_clock::duration patience) const {
    return !is_busy() && !has_more_ && !may_have_bytes_ && Clock::now() - heard_at_ >= patience;
  }
  bool is_done() const { return is_done_; }

  void close() { is_done_ = true; }
  // The client has closed its side, or is gone. It waits for no more pieces.
  void note_hang_up();
  // There are bytes to receive, with the next serve(): until then it is neither silent nor between
  // two requests.
  void note_bytes() { may_have_bytes_ = true; }
  // Receives, answers and sends what can be without waiting: at most one answer or piece.
  // Throws: InternalError and CommError of an answer or a piece
  void serve(Server& server);

 private:
  bool is_sending() const { return num_sent_ < to_send_.size(); }
  bool is_busy() const { return is_sending() || pieces_; }
  bool has_room() const;
  void receive_some(const Server& server);
  void answer(Server& server);
  void begin_pieces(HttpResponse response, const HttpRequest& request);
  void ask_for_piece(Server& server);
  void send(std::string bytes);
  void send_some();
  void end_answer();

  Descriptor socket_;
  Options options_;
  std::string received_;
  std::string to_send_;
  size_t num_sent_ = 0;
  bool is_ending_ = false;  // after what is to be sent
  bool has_continued_ = false;
  bool is_let_in_ = false;    // the request whose body arrives
  bool is_draining_ = false;  // its answer is sent; what it still sends is dropped until it closes
  bool has_more_ = false;     // bytes that came together with an earlier request
  bool may_have_bytes_ = true;  // that were not looked for
  bool is_done_ = false;
  Clock::time_point heard_at_ = Clock::now();
  Clock::time_point deadline_{};  // of the request or the answer under way; none in between
  // By the server, when this connection was served last; none before that.
  std::optional<Clock::duration> worked_{};
  // Of an answer that is made while it is sent.
  std::shared_ptr<HttpPieces> pieces_;
  bool waits_ = false;  // for a piece that comes later
  bool is_chunked_ = false;
  HttpResponse whole_;  // collects the pieces that are sent whole
  bool is_whole_ = false;
};

}  // namespace trireme::comm
