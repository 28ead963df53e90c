// Serves the job's store from rank 0. Only ranks of this job that know the token are let in.
// Strangers never block it and cost a bounded number of connections, each of a few hundred bytes. A
// connection without a valid hello is closed after a while; when there are many, the oldest is
// closed first.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {

struct StoreServerOptions {
  std::string token = {};  // empty: every process that reaches the listeners passes
  std::string job = {};    // the launcher's name for the job; all ranks must have the same
  int size = 1;            // ranks of the job; 0: members without ranks, any number of them
  // Answers requests (a message without its length) in place of the store's table, at once and from
  // the server's thread; empty: no member sends such a request.
  std::function<std::vector<uint8_t>(std::span<const uint8_t> request)> answer = nullptr;
  // How long a connection may take to identify itself, and how many may be doing so at once.
  std::chrono::milliseconds patience{5000};
  size_t max_strangers = 128;
  // Gets a line about refused connections: the 1st, 10th, 100th, ... of each address and reason.
  // Called from the server's thread.
  std::function<void(const std::string&)> on_refused = nullptr;
};

class StoreServer {
 public:
  StoreServer(std::vector<Descriptor> listeners, StoreServerOptions options);
  ~StoreServer();  // closes every connection
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // "3 connections were refused: 2 from 10.0.0.7 (wrong token), 1 from 10.0.0.8 (...)"; "" when
  // there were none. Distinguishes at most 64 pairs of address and reason. Any thread.
  std::string refusals() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::comm
