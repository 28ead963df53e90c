// A worker's side: pushes gradients to the servers and pulls weights, first layer first. One worker
// is a rank, or with HostSums all ranks of a host (host_sums.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel {

struct ServerClientOptions {
  std::string director;  // address
  // This worker's number, from 0. A synchronous step sums gradients in the order of these numbers.
  // A worker that starts with the number of a dead one takes its place.
  uint32_t number = 0;
};

struct ClientCounts {
  int64_t sent_bytes = 0;  // frames with their headers, without beats
  int64_t received_bytes = 0;
  int64_t resent = 0;  // requests that were sent again because their chain changed
};

// Frames are sent in the order of their pieces, so the first layer's weights arrive before the last
// layer's, whatever was pushed before. Steps count from 1: pull(step), compute, push(step).
// Comm, per step and worker, for M bytes of dense parameters in P pieces: sent M + 128 P, received
//       M + 128 P. A pushed row sends its bytes and 8 more. A pulled row sends 8 bytes and receives
//       its own; pieces without pulled rows are not requested.
// Thread safety: one thread at a time. The client's own thread sends and receives in the
// background.
// Throws: every call: CommError if the last copy of a shard is lost, if the director is lost or has
//         removed this worker, or if an answer is late; it names the operation, the worker, the
//         servers and the time. ConfigError if a server refuses a request. The client is dead
//         after either.
class ServerClient {
 public:
  // Waits until the run has begun, and joins it.
  ServerClient(const ServerRun& run, const ServerClientOptions& options);
  ~ServerClient();  // without leave(): as if the worker had died
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  // This worker's first step: 1, or, in a run under way, the step after the one that all others
  // have finished.
  int64_t first_step() const;

  // Requests the weights before `step`. Step 0: requests the servers' present weights, without
  // waiting for other workers.
  // destinations[i]: parameter i's tensor, contiguous. Do not use it before wait_pulled(i) returns.
  //                  Undefined or missing: not requested.
  void pull(int64_t step, const std::vector<at::Tensor>& destinations);
  // Requests some rows of a parameter, which pull() then has to leave out. Several such pulls of
  // one parameter may be under way. Step 0: as in pull().
  // rows: ascending; destination: [rows, width], contiguous
  void pull_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& destination);
  // Waits for all pulls of parameter i.
  void wait_pulled(int64_t parameter);
  void wait_all_pulled();

  // Pushes a parameter's gradient of `step`. Shares the gradient's memory, which must not change
  // before wait_pushed() returns.
  // gradient: contiguous, of the parameter's size and dtype
  void push(int64_t step, int64_t parameter, const at::Tensor& gradient, double learning_rate);
  // The same for a sparse parameter; copies the gradients. Pushes to each of its pieces, even
  // without rows.
  // rows: ascending; gradients: [rows, width]
  void push_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& gradients, double learning_rate);
  // Rounds (Consistency): pushes what this worker has learned of a parameter since the weights that
  // it has pulled last.
  // payload: the bytes of the difference's elements [first, first + count), for
  //          PieceUpdate::read_difference(); called once for each piece
  // weight:  in the mean of the round, 0 or more
  void push_difference(int64_t step, int64_t parameter, double weight,
                       const std::function<at::Tensor(int64_t first, int64_t count)>& payload);
  // What the last pull of a parameter has brought, once it is here: least of its pieces.
  struct Pulled {
    int64_t version = 0;   // rounds so far
    int64_t workers = 0;   // with a part in the last one
    bool is_late = false;  // this worker's last push is not in them yet
  };
  Pulled pulled(int64_t parameter) const;
  // Rounds: whether the others' rounds may end without this worker, whatever the quorum. When all
  // are away, rounds under way have ended. On return all servers know.
  void set_away(bool is_away);

  // Waits until every push is on all copies of its shard.
  void wait_pushed();

  // Returns rows [begin, end) of tensor number `state` of a parameter's optimizer; undefined if the
  // optimizer has no tensor of that number. Do not call while pushes are under way.
  at::Tensor pull_state(int64_t parameter, int64_t state, int64_t begin, int64_t end);
  // The same for all rows.
  at::Tensor pull_state(int64_t parameter, int64_t state);

  // Waits for the pushes and leaves the run. The others stop waiting for this worker.
  void leave();

  ClientCounts counts() const;  // any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
