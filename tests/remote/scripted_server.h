// A store on loopback whose every answer a test decides, byte for byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::remote {

class ScriptedServer {
 public:
  // Turns a request, with its body, into what is sent; "" sends nothing. The connection is closed
  // afterwards. Called from several threads.
  using Answer = std::function<std::string(const std::string& request)>;

  explicit ScriptedServer(Answer answer);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string host() const;                               // "127.0.0.1:PORT"
  std::string url() const { return "http://" + host(); }  // without a path
  int num_requests() const { return num_requests_; }

 private:
  void serve(Descriptor connection);

  Answer answer_;
  Descriptor listener_;
  std::atomic<int> num_requests_{0};
  std::atomic<bool> is_ending_{false};
  std::vector<std::thread> connections_;
  std::thread thread_;
};

// "HTTP/1.1 206 Partial Content" and what follows, for the part of `object` that a request asks
// for; 416 beyond its end.
std::string range_answer(const std::string& request, const std::string& object,
                         const std::string& tag = "\"v1\"");

// An answer without a body, or with one.
std::string plain_answer(const std::string& status, const std::string& headers = "",
                         const std::string& body = "");

// The value of a header of a request; "": it has none.
std::string request_header(const std::string& request, const std::string& name);

}  // namespace trireme::remote
