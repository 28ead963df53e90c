// Serves the job's store from rank 0. Only ranks of this job that know the token are let in.
// Strangers cost a bounded number of connections of a few hundred bytes each, and never block it: a
// connection without a valid hello is closed after a while, the oldest first when there are many.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/rendezvous/tcp_socket.h"

namespace trireme::comm {

struct StoreServerOptions {
  std::string token = {};  // empty: any process that reaches the listeners proves that
  std::string job = {};    // the launcher's name of the job; the ranks' must be the same
  int size = 1;            // ranks of the job
  // How long a connection may take to say who it is, and how many may be about to.
  std::chrono::milliseconds patience{5000};
  size_t max_strangers = 128;
  // Told one line about connections that are refused: the first of an address and reason, the 10th,
  // the 100th. From the server's thread.
  std::function<void(const std::string&)> on_refused = nullptr;
};

class StoreServer {
 public:
  StoreServer(std::vector<Descriptor> listeners, StoreServerOptions options);
  ~StoreServer();  // every connection ends
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // "3 connections were refused: 2 from 10.0.0.7 (wrong token), 1 from 10.0.0.8 (...)"; empty when
  // none was. At most 64 addresses and reasons are told apart. Any thread.
  std::string refusals() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::comm
