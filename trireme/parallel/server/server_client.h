// A worker's side: pushes gradients to the servers and pulls weights, first layer first.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/server_options.h"

namespace trireme::parallel {

struct ServerClientOptions {
  std::string director;  // its address
  // Of this worker, from 0. A synchronous step sums gradients in the order of these numbers. A
  // worker that comes again with the number of a dead one takes its place.
  uint32_t number = 0;
};

struct ClientCounts {
  int64_t sent_bytes = 0;  // frames with their headers, without the signs of life
  int64_t received_bytes = 0;
  int64_t resent = 0;  // requests, to a server that took the place of a dead one
};

// Frames wait in the order of their pieces, so the first layer's weights come before the last
// layer's, whatever was pushed before. Steps count from 1: pull(step), compute, push(step).
// Comm, per step and worker, for M bytes of dense parameters in P pieces: sent M + 128 P, received
//       M + 128 P. A pushed row has 8 bytes and its own; a pulled row sends 8 and
//       receives its own, and pieces without pulled rows are not asked for.
// Thread safety: one thread at a time. The client's own thread sends and receives meanwhile.
// Throws: each call CommError when a server is lost with its last copy, the director is lost or has
//         given this worker up, or an answer is late; it names the operation, the worker, the
//         servers and the time. ConfigError when a server refuses what was sent. The client is dead
//         afterwards.
class ServerClient {
 public:
  // Waits until the run has begun, and takes part.
  ServerClient(const ServerRun& run, const ServerClientOptions& options);
  ~ServerClient();  // without leave(): as if the worker had died
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  // The first step of this worker: 1, or in a run under way the one that the slowest worker is in.
  int64_t first_step() const;

  // Asks for every piece before `step`. Step 0: whatever the servers have, and nobody waits.
  // destinations[i]: contiguous, of parameter i; complete after wait_pulled(i). Nobody else may use
  // them until then. Undefined or missing: not asked for.
  void pull(int64_t step, const std::vector<at::Tensor>& destinations);
  // Asks for some rows of parameter i, besides pull(), which leaves it out. Several such pulls of a
  // parameter may be under way. Step 0 as in pull().
  // rows: ascending; destination: [rows, width], contiguous
  void pull_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& destination);
  // Waits for parameter i of the last pull() and pull_rows().
  void wait_pulled(int64_t parameter);
  void wait_all_pulled();

  // Pushes parameter i's gradient in `step`. Shares the gradient's memory, which must not change
  // until wait_pushed().
  // gradient: contiguous, of the parameter's size and dtype
  void push(int64_t step, int64_t parameter, const at::Tensor& gradient, double learning_rate);
  // The same of a sparse parameter, copied. Every piece of it gets a push, if only of no row.
  // rows: ascending; gradients: [rows, width]
  void push_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& gradients, double learning_rate);
  // Waits until every push is at all copies of its shard.
  void wait_pushed();

  // Rows [begin, end) of the optimizer's tensor `state` of parameter i, pieced together as the
  // parameter is; undefined when its rule has no more than `state`. Not while pushes are under way.
  at::Tensor pull_state(int64_t parameter, int64_t state, int64_t begin, int64_t end);
  // The same of all rows.
  at::Tensor pull_state(int64_t parameter, int64_t state);

  // Waits for the pushes and leaves the run. Nobody waits for this worker any more.
  void leave();

  ClientCounts counts() const;  // any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::parallel
