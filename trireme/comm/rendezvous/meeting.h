// A store where processes of a job meet before they are ranks, such as the agents of its hosts. It
// is the ranks' store (store_server.h) with the same token, for any number of members.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::comm {

class Cancellation;

struct MeetingOptions {
  std::string address{};  // "HOST:PORT"
  std::string listen{};   // where the server listens instead, when HOST is only forwarded to it
  std::string job{};      // the same for all members
  std::chrono::milliseconds timeout{300'000};  // to find the server
  // How long the server may take to answer before it counts as gone. One that this process serves
  // never does.
  std::chrono::milliseconds answer_patience{30'000};
  // Ends the attempts to find the server; null: nothing does.
  std::shared_ptr<Cancellation> cancellation = nullptr;
  // Gets a line about refused connections, now and then, from another thread.
  std::function<void(const std::string& line)> on_refused = nullptr;
};

// Thread safe: a call that waits delays no other.
class Meeting {
 public:
  // Serves the store at the address. Only this address accepts connections.
  // Throws: ConfigError when the address is not this host's, the port is in use, or other hosts can
  //         reach it and there is no token (TRIREME_TOKEN, TRIREME_TOKEN_FILE)
  static Meeting serve(const MeetingOptions& options);
  // Joins the store that another process serves.
  // Throws: ConfigError when it has another token or job, or is no such store; CommError when
  //         nobody answers in time
  static Meeting join(const MeetingOptions& options);
  // Whether serve() would find the address on this host, with nobody listening there.
  static bool can_serve(const MeetingOptions& options);

  ~Meeting();
  Meeting(Meeting&&) noexcept;

  // Each of these throws CommError when the server is gone.
  void set(const std::string& key, const std::string& value);
  // Adds to a number that begins at 0; returns the sum.
  int64_t add(const std::string& key, int64_t value);
  // The values of keys that exist.
  std::vector<std::string> get(const std::vector<std::string>& keys);
  // The value, once the key exists; nothing when it does not within `patience`, which is above 0.
  std::optional<std::string> wait_for(const std::string& key, std::chrono::milliseconds patience);

  // The address of this host that other members reach: that of its connection to the server.
  const std::string& own_address() const;

 private:
  class State;
  explicit Meeting(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
