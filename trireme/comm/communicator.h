// A group of ranks that exchange tensors: the one interface everything that communicates is written
// against. Its transports: thread (ranks as threads), shm (processes of one host), gloo, nccl, mpi,
// and hierarchical (one within hosts, another between them).
// The order in which a reduction takes an element's terms depends on neither message size nor
// chunking, except with nccl:
//   thread, shm, gloo, mpi   rank order: the same bits on each
//   hierarchical             host by host, in rank order within a host. That is rank order when the
//                            ranks of each host follow one another, as launchers place them.
//   nccl                     NCCL's own; it may change with size and number of ranks
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace trireme::comm {

enum class ReduceOp { kSum, kProduct, kMin, kMax, kAverage, kBitAnd, kBitOr, kBitXor };

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

struct Options {
  ReduceOp operation = ReduceOp::kSum;
  // How long a rank waits for its peers before it throws; zero means the group's own timeout.
  std::chrono::milliseconds timeout{0};
  // Matches a send with its recv.
  int tag = 0;
  // false: runs in the calling thread, and the returned work is done.
  // true: returns at once. Background collectives of a group run in the order of their calls;
  // background sends and recvs progress side by side, independent of them and of each other.
  bool background = false;
};

// A recv's peer when any rank will do.
inline constexpr int kAnySource = -1;

// One issued operation. Its tensors stay unchanged by others until it is done; the group holds
// them.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until done. Throws: CommError when a peer died, timed out or called something else.
  virtual void wait() = 0;
  // As wait(), but gives up after `limit` and returns false; the operation goes on.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  // True when done, in success or failure; never blocks.
  virtual bool poll() = 0;
  // Gives up: this and every later call on the group throws CommError, here and on the peers.
  virtual void abort() = 0;
  // The rank a finished recv's data came from; -1 for every other operation.
  virtual int source() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

// A message to be read where it lies. It is given back, and only then is the peer's send done, when
// the loan and every tensor that shares data()'s memory are gone. That may be on any thread, before
// the message has come too, and never waits. The memory stays readable until then whatever becomes
// of group and peer; once the group is dead, its values may change.
class Loan : public Work {
 public:
  // What the peer sent, once wait() has returned; not to be written.
  virtual const at::Tensor& data() const = 0;
};
using LoanPtr = std::shared_ptr<Loan>;

// Thread safety: one thread at a time issues operations on a group; different groups are
// independent. Collective: every rank calls the same operations in the same order with matching
// shapes and dtypes; a mismatch is a CommError on every rank that names both sides, never a hang.
// Throws: CommError after a peer's death (within 2 s), a timeout or a mismatch; the group is dead
// then.
//         ConfigError on an unsupported (operation, dtype), before anything is sent.
// Bytes on the wire below are per rank for p ranks and n bytes of data.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  // Whether reductions take their terms in rank order.
  virtual bool reduces_in_rank_order() const = 0;

  // data: same shape everywhere; in place, result on every rank. Comm: 2(p-1)/p * n.
  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor data, Options options = {}) = 0;
  // data: in place, result on `root` alone. Comm: (p-1)/p * n, n at the root.
  [[nodiscard]] virtual WorkPtr reduce(at::Tensor data, int root, Options options = {}) = 0;
  // data: the root's values end up on every rank. Comm: n received, (p-1) * n sent by the root.
  [[nodiscard]] virtual WorkPtr broadcast(at::Tensor data, int root, Options options = {}) = 0;
  // input: this rank's block; outputs[r]: rank r's, shapes may differ by rank. Comm: sum of the
  // others.
  [[nodiscard]] virtual WorkPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                           Options options = {}) = 0;
  // inputs[r]: what goes into rank r's output; shapes may differ by r. Comm: (p-1)/p * n.
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                               Options options = {}) = 0;
  // inputs[r] goes to rank r, outputs[r] comes from rank r. Comm: (p-1)/p * n.
  [[nodiscard]] virtual WorkPtr all_to_all(std::vector<at::Tensor> outputs,
                                           std::vector<at::Tensor> inputs,
                                           Options options = {}) = 0;
  // outputs: one tensor per rank on `root`; empty elsewhere. Comm: n sent, (p-1) * n received by
  // the root.
  [[nodiscard]] virtual WorkPtr gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                                       Options options = {}) = 0;
  // inputs: one tensor per rank on `root`; empty elsewhere. Comm: n received, (p-1) * n sent by the
  // root.
  [[nodiscard]] virtual WorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                                        Options options = {}) = 0;
  // Point to point: a recv takes the oldest message of `peer`, or of any rank, with its tag; one of
  // another size or dtype is a CommError on both. A send may wait for its recv. Comm: n.
  [[nodiscard]] virtual WorkPtr send(at::Tensor data, int peer, Options options = {}) = 0;
  [[nodiscard]] virtual WorkPtr recv(at::Tensor data, int peer, Options options = {}) = 0;
  // As recv into a new contiguous tensor. Where ranks share memory and the peer sends symmetric
  // memory, that tensor is the peer's own memory, without a copy; the send's timeout then includes
  // how long it is read. A few messages of a pair can be lent at a time; further ones are copied.
  // What was borrowed may be sent on. Give loans back before the group goes. Comm: n.
  [[nodiscard]] virtual LoanPtr borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                                       Options options = {});
  // Returns when every rank has arrived.
  [[nodiscard]] virtual WorkPtr barrier(Options options = {}) = 0;

  // Memory that the group's collectives handle fastest: on a host's shared memory, a heap that all
  // its ranks have mapped, so that peers read and write it without copies; elsewhere ordinary
  // memory. Not collective; what a rank allocates changes no result. May outlive the group.
  // Throws: ConfigError when the heap is full, saying how large it must be
  virtual at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) = 0;

  // From now on every call on the group throws CommError with `reason`, here and on the peers;
  // calls that wait do so soon. The first reason stays. From any thread, while others wait on the
  // group.
  virtual void abort(const std::string& reason) = 0;

  // A new group of the ranks that gave the same `color`, ordered by (key, rank). A negative color
  // takes part in the call and gets nullptr. `name` appears in errors. Collective: every rank of
  // this group.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;
};

}  // namespace trireme::comm
