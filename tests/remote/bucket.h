// A bucket of S3's kind, in memory: objects, conditions of writing, uploads in parts, listings in
// pages of two names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "tests/remote/scripted_server.h"
#include "trireme/remote/store_settings.h"

namespace trireme::remote {

class Bucket {
 public:
  StoreSettings settings() const { return {.s3 = {.endpoint = server_.url()}}; }

  std::map<std::string, std::string> objects();
  void put(const std::string& name, const std::string& content);
  // Makes all objects so many seconds older.
  void age(int64_t seconds);
  // Called with method and name before each request; an answer that is not "" takes its place, but
  // for kDoneAndLost: the request is done, and its answer does not arrive.
  static constexpr const char* kDoneAndLost = "done and lost";
  void on_request(std::function<std::string(const std::string&, const std::string&)> hook);
  int num_uploads();  // begun and neither completed nor removed
  int num_requests() const { return server_.num_requests(); }
  // Whether listings have ETags, as those of most stores.
  void list_tags(bool has_tags);

 private:
  struct Object {
    std::string content{};
    std::string tag{};
    int64_t changed = 0;
  };
  std::string answer(const std::string& request);
  std::string list(const std::string& query);

  std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::map<std::string, std::map<int, std::string>> uploads_;
  int64_t num_written_ = 0;
  bool has_tags_ = false;
  int64_t now_ = 1369353600;  // the clock of the store: 2013-05-24
  std::function<std::string(const std::string&, const std::string&)> hook_;
  ScriptedServer server_{[this](const std::string& request) { return answer(request); }};
};

}  // namespace trireme::remote
