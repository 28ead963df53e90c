#include "tests/remote/scripted_server.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::remote {

ScriptedServer::ScriptedServer(Answer answer)
    : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool works =
      ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(listener_.get(), 64) == 0;
  TRIREME_ASSERT(works, "no port on loopback");
  thread_ = std::thread([this] {
    while (!is_ending_) {
      pollfd wanted{listener_.get(), POLLIN, 0};
      if (::poll(&wanted, 1, 20) != 1) continue;
      Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.is_open()) continue;
      connections_.emplace_back(
          [this, open = std::move(connection)]() mutable { serve(std::move(open)); });
    }
  });
}

ScriptedServer::~ScriptedServer() {
  is_ending_ = true;
  thread_.join();
  for (std::thread& each : connections_) each.join();
}

std::string ScriptedServer::host() const {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return concat("127.0.0.1:", ntohs(address.sin_port));
}

void ScriptedServer::serve(Descriptor connection) {
  std::string request;
  char piece[4096];
  const auto is_whole = [&request] {
    const size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const size_t body =
        std::strtoull(request_header(request, "content-length").c_str(), nullptr, 10);
    return request.size() >= end + 4 + body;
  };
  while (!is_ending_ && !is_whole()) {
    pollfd wanted{connection.get(), POLLIN, 0};
    if (::poll(&wanted, 1, 20) != 1) continue;
    const ssize_t count = ::recv(connection.get(), piece, sizeof(piece), 0);
    if (count <= 0) return;
    request.append(piece, static_cast<size_t>(count));
  }
  ++num_requests_;
  const std::string text = answer_(request);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count =
        ::send(connection.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

std::string request_header(const std::string& request, const std::string& name) {
  std::string lower = request;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t at = lower.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + 4 + name.size();
  return request.substr(begin, request.find("\r\n", begin) - begin);
}

std::string plain_answer(const std::string& status, const std::string& headers,
                         const std::string& body) {
  return concat("HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", body.size(),
                "\r\nConnection: close\r\n\r\n", body);
}

std::string range_answer(const std::string& request, const std::string& object,
                         const std::string& tag) {
  const std::string range = request_header(request, "range");  // bytes=A-B
  const size_t begin = std::strtoull(range.c_str() + 6, nullptr, 10);
  const size_t last = std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 10);
  const std::string if_match = request_header(request, "if-match");
  if (!if_match.empty() && if_match != tag) return plain_answer("412 Precondition Failed");
  if (begin >= object.size()) {
    return plain_answer(
        "416 Range Not Satisfiable",
        concat("Content-Range: bytes */", object.size(), "\r\nETag: ", tag, "\r\n"));
  }
  const std::string part = object.substr(begin, last - begin + 1);
  return plain_answer("206 Partial Content",
                      concat("Content-Range: bytes ", begin, "-", begin + part.size() - 1, "/",
                             object.size(), "\r\nETag: ", tag, "\r\n"),
                      part);
}

}  // namespace trireme::remote
