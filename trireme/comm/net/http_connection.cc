#include "trireme/comm/net/http_connection.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// Bytes of pieces that a client has not taken, here; the kernel holds about as many.
constexpr size_t kHeldBytes = 64 << 10;
// A request that has brought as much while the server worked is not late.
constexpr size_t kProgressBytes = 4 << 10;

// The time of `work` is that of the server.
template <typename Work>
auto timed(HttpConnection::Server& server, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = work();
  server.worked += std::chrono::steady_clock::now() - begin;
  return result;
}

// Bounds what the kernel takes of pieces that nobody reads, and lets each go at once. A socket of
// another kind has no such options, and needs none.
void prepare_for_pieces(int fd) {
  const int bytes = kHeldBytes, on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

HttpResponse answer_or_error(const std::function<HttpResponse()>& work) {
  try {
    return work();
  } catch (const InternalError&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const ConfigError& error) {
    return http_error(400, error.what());
  } catch (const std::exception& error) {
    return http_error(500, error.what());
  }
}

HttpConnection::HttpConnection(Descriptor socket, const Options& options)
    : socket_(std::move(socket)), options_(options), deadline_(Clock::now() + options.patience) {}

short HttpConnection::events() const {
  // What a client sends while it waits for pieces stays in the kernel.
  if (pieces_) return POLLRDHUP | (is_sending() ? POLLOUT : 0);
  return is_sending() ? POLLOUT : POLLIN;
}

bool HttpConnection::has_room() const {
  return pieces_ && (is_whole_ || to_send_.size() - num_sent_ < kHeldBytes);
}

bool HttpConnection::has_work() const { return has_more_ || (has_room() && !waits_); }

void HttpConnection::note_hang_up() {
  if (pieces_) is_done_ = true;
}

void HttpConnection::serve(Server& server) {
  may_have_bytes_ = false;
  if (is_sending()) {
    send_some();
  } else if (!pieces_) {
    receive_some(server);
    if (is_draining_) {
      received_.clear();
    } else if (!is_done_) {
      answer(server);
    }
  }
  if (!is_done_ && has_room()) ask_for_piece(server);
  worked_ = server.worked;
  if (deadline_ != Clock::time_point() && Clock::now() > deadline_) is_done_ = true;
}

void HttpConnection::receive_some(const Server& server) {
  const size_t most = options_.limits.head_bytes + options_.limits.body_bytes + kReadBytes;
  char bytes[kReadBytes];
  size_t num_bytes = 0;
  while (received_.size() < most) {
    const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      is_done_ = true;
      return;
    }
    if (received_.empty() && !is_draining_) deadline_ = Clock::now() + options_.patience;
    received_.append(bytes, static_cast<size_t>(count));
    num_bytes += static_cast<size_t>(count);
  }
  if (num_bytes > 0) heard_at_ = Clock::now();
  // It could send no more than this while the server did something else.
  if (num_bytes >= kProgressBytes && !is_draining_)
    deadline_ += server.worked - worked_.value_or(server.worked);
}

// Answers what has arrived, a request at a time.
void HttpConnection::answer(Server& server) {
  has_more_ = false;
  if (received_.empty()) return;
  HttpParse parse = parse_http(received_, options_.limits);
  if (parse.refusal) {
    is_ending_ = true;
    return send(to_bytes(*parse.refusal, /*keeps_alive=*/false));
  }
  if (!parse.request) {
    if (parse.head && !std::exchange(is_let_in_, true) && server.refuse) {
      if (const auto refusal = timed(server, [&] { return server.refuse(*parse.head); })) {
        is_ending_ = true;
        return send(to_bytes(*refusal, /*keeps_alive=*/false));
      }
    }
    if (parse.expects_continue && !std::exchange(has_continued_, true))
      send("HTTP/1.1 100 Continue\r\n\r\n");
    return;
  }
  received_.erase(0, parse.num_bytes);
  has_continued_ = is_let_in_ = false;
  const HttpRequest& request = *parse.request;
  is_ending_ = !request.keeps_alive;
  HttpResponse response = timed(server, [&] { return server.answer(request); });
  const bool is_head = request.method == "HEAD";
  if (!response.pieces) return send(to_bytes(response, request.keeps_alive, is_head));
  if (is_head) return send(to_head(response, request.keeps_alive, request.takes_chunks));
  begin_pieces(std::move(response), request);
}

void HttpConnection::begin_pieces(HttpResponse response, const HttpRequest& request) {
  pieces_ = std::exchange(response.pieces, nullptr);
  waits_ = false;
  is_chunked_ = request.takes_chunks;
  is_whole_ = response.is_sent_whole;
  deadline_ = {};
  if (is_whole_) {
    whole_ = std::move(response);
    return;
  }
  prepare_for_pieces(socket_.get());
  // Without chunks only the end of the connection ends the body.
  if (!is_chunked_) is_ending_ = true;
  send(to_head(response, !is_ending_, is_chunked_));
}

void HttpConnection::ask_for_piece(Server& server) {
  HttpPiece piece;
  const HttpResponse asked = timed(server, [&] {
    return answer_or_error([&] {
      piece = pieces_->next();
      return HttpResponse();
    });
  });
  const bool has_failed = asked.status != HttpResponse().status;
  waits_ = piece.then == HttpPiece::Then::kLater;
  if (is_whole_) {
    whole_.body += piece.bytes;
    if (!has_failed && piece.then != HttpPiece::Then::kEnd) return;
    pieces_.reset();
    return send(to_bytes(has_failed ? asked : std::exchange(whole_, {}), !is_ending_));
  }
  // The status is sent. A body that lacks its last chunk says that something went wrong.
  if (has_failed) return close();
  std::string bytes = is_chunked_ && !piece.bytes.empty() ? to_chunk(piece.bytes) : piece.bytes;
  if (piece.then == HttpPiece::Then::kEnd) {
    pieces_.reset();
    if (is_chunked_) bytes += kLastChunk;
  } else if (bytes.empty()) {
    return;
  }
  send(std::move(bytes));
}

void HttpConnection::send(std::string bytes) {
  if (!is_sending()) deadline_ = Clock::now() + options_.patience;
  to_send_.erase(0, std::exchange(num_sent_, 0));
  to_send_ += bytes;
  send_some();
}

void HttpConnection::send_some() {
  while (is_sending()) {
    const std::string_view rest = std::string_view(to_send_).substr(num_sent_);
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      is_done_ = true;
      return;
    }
    num_sent_ += static_cast<size_t>(count);
    deadline_ = Clock::now() + options_.patience;
  }
  if (pieces_) {
    deadline_ = {};
  } else {
    end_answer();
  }
}

void HttpConnection::end_answer() {
  if (is_ending_) {
    // Closed with bytes unread, the peer would lose the answer.
    ::shutdown(socket_.get(), SHUT_WR);
    is_draining_ = true;
  } else if (received_.empty()) {
    deadline_ = {};
  } else {
    has_more_ = true;
  }
}

}  // namespace trireme::comm
