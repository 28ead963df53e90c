// The job's store as a c10d::Store: a connection to rank 0's StoreServer.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/net/store_wire.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {

class StoreServer;

struct StoreClientOptions {
  TcpAddress address;
  std::string token = {};
  std::string job = {};
  int rank = 0;
  int size = 1;  // 0: a member without a rank
  // What a member without a rank and the server's process are called in errors, and what to do
  // where the port is another job's.
  std::string member = "this agent";
  std::string server = "the agent of that host";
  std::string port_advice = "give --rdzv-endpoint a free port on all agents of this job";
  // How long to wait for the server, and by default for keys.
  std::chrono::milliseconds timeout{300'000};
  // Time for the server to answer a request that need not wait. A later answer is none. Does not
  // hold for a server in this process, which is late only when the process was paused.
  std::chrono::milliseconds answer_patience{30'000};
  // Ends the attempts to reach the server; null: nothing does.
  std::shared_ptr<Cancellation> cancellation = nullptr;
};

// A connection over which the server at the address takes requests.
// endpoints: those of the address
// timeout:   in place of that of the options
// Throws: as StoreClient
Descriptor join_store(const StoreClientOptions& options, const std::vector<Endpoint>& endpoints,
                      std::chrono::milliseconds timeout);

// Thread safe. A call that waits for a key delays no other, because each call uses its own
// connection while it runs. Idle connections are reused.
class StoreClient : public c10d::Store {
 public:
  // `server`: given when this process serves the store; kept alive by this client.
  // Throws: ConfigError (the host does not resolve; the token, the job or its size differ; the rank
  //         is taken; another kind of server listens there), CommError (nobody answered in time)
  explicit StoreClient(StoreClientOptions options, std::shared_ptr<StoreServer> server = nullptr);
  ~StoreClient() override;

  const std::string& host() const { return options_.address.host; }
  // Connections refused by this process's server (StoreServer::refusals); "" when it has none.
  std::string refusals() const;

  // These behave as in c10d::TCPStore. They throw c10::DistStoreError when keys do not come in time
  // and c10::DistNetworkError when the server is gone.
  using c10d::Store::compareSet;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  Descriptor take_connection();
  [[noreturn]] void fail_lost(const char* how);
  // Returns the fields of the reply.
  wire::Bytes ask(wire::FrameWriter& request, std::chrono::milliseconds patience);
  wire::Bytes ask_for(wire::Request request, const std::vector<std::string>& keys,
                      std::chrono::milliseconds timeout);

  const StoreClientOptions options_;
  const std::vector<Endpoint> endpoints_;
  const std::shared_ptr<StoreServer> server_;
  std::atomic<bool> is_lost_ = false;  // for good: the keys are lost with the server
  std::mutex mutex_;
  std::vector<Descriptor> idle_;
};

}  // namespace trireme::comm
