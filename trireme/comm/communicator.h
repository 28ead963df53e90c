// A group of ranks that exchange tensors. All communication goes through this interface. The
// transports are thread (ranks as threads), shm (processes of one host), gloo, nccl, cuda-ipc
// (ranks that share a GPU), mpi, and hierarchical (one transport within hosts, another between
// them). The order in which a reduction takes an element's terms depends neither on message size
// nor on chunking, except with nccl:
//   thread, shm, gloo, cuda-ipc, mpi   rank order: the same bits on each
//   hierarchical             host by host, in rank order within a host. This is rank order when the
//                            ranks of each host are consecutive, as launchers place them.
//   nccl                     NCCL's own; it may change with size and number of ranks
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace trireme::comm {

// The call a rank is in, for its peers to compare and for people to read.
struct Call {
  const char* operation = "";  // a literal; its text is sent to peers
  int dtype = -1;              // c10::ScalarType; -1: none
  int reduce_op = -1;          // ReduceOp; -1: none
  int root = -1;
  int64_t elements = -1;     // -1: may differ by rank
  uint64_t block_sizes = 0;  // hash of the sizes that all ranks must agree on; 0: none
};

// "all_reduce(Float, 3 elements, sum)"
std::string to_string(const Call& call);

struct Borrowed;
struct Moves;
struct FlatCollective;

enum class ReduceOp { kSum, kProduct, kMin, kMax, kAverage, kBitAnd, kBitOr, kBitXor };

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

struct Options {
  ReduceOp operation = ReduceOp::kSum;
  // How long a rank waits for its peers before it throws. Zero means the group's timeout.
  std::chrono::milliseconds timeout{0};
  // Matches a send with its recv: 0 to kMostTag.
  int tag = 0;
  // false: runs in the calling thread; the returned work is done.
  // true: returns at once. Background collectives of a group run in the order of their calls.
  // Background sends and recvs progress in parallel, independent of the collectives and of each
  // other.
  bool background = false;
};

// As a recv's peer: any rank.
inline constexpr int kAnySource = -1;
// The largest tag, on every transport.
inline constexpr int kMostTag = (1 << 26) - 1;

// An issued operation. The group holds its tensors; nobody else may change them until it is done.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until done.
  // Throws: CommError when a peer died, timed out or called something else
  virtual void wait() = 0;
  // Like wait(), but gives up after `limit` and returns false. The operation continues.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  // True when done, in success or failure; never blocks.
  virtual bool poll() = 0;
  // Aborts the group: this and every later call on it throws CommError, here and on the peers.
  virtual void abort() = 0;
  // The rank that sent a finished recv's data; -1 for every other operation.
  virtual int source() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

// A received message that is read in place. It is given back when the loan and every tensor that
// shares data()'s memory are gone; only then is the peer's send done. Giving it back never waits.
// It may happen on any thread, even before the message has arrived. Until then the memory stays
// readable, whatever happens to the group and the peer; once the group is dead, its values may
// change.
class Loan : public Work {
 public:
  // The peer's data, once wait() has returned. Read only.
  virtual const at::Tensor& data() const = 0;
};
using LoanPtr = std::shared_ptr<Loan>;

// A rank's call on a group, as a value. Fields that its kind does not use keep their defaults.
struct Collective {
  enum class Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kGather,
    kScatter,
    kSend,
    kRecv,
    kBarrier
  };
  Kind kind = Kind::kBarrier;
  at::Tensor data{};                  // this rank's own: read, written, or both
  std::vector<at::Tensor> outputs{};  // outputs[r] comes from rank r
  std::vector<at::Tensor> inputs{};   // inputs[r] goes to rank r
  int peer = -1;                      // the root, or the other end of a message
  Options options{};
  std::shared_ptr<Borrowed> borrowed{};  // a recv that borrows: takes the place of data
  Call compared{};                       // what the ranks compare; the transport fills it in

  // data, or in its place the first input: its shape is recorded.
  const at::Tensor& first_tensor() const {
    return data.defined() || inputs.empty() ? data : inputs[0];
  }
  bool is_message() const { return kind == Kind::kSend || kind == Kind::kRecv; }
  // Whether `rank` finds something new in data when the call is done.
  bool writes_data(int rank) const;
};

// "all_reduce"
const char* name_of(Collective::Kind kind);
// What the comments below call Comm, for one of `size` ranks.
int64_t wire_bytes(const Collective& call, int rank, int size);

// Thread safety: one thread at a time issues operations on a group. Different groups are
// independent. Bytes on the wire below are per rank, for p ranks and n bytes of data.
// Collective: every rank calls the same operations in the same order with matching shapes and
//             dtypes. A mismatch is a CommError on every rank that names both sides, never a hang.
// Throws:     CommError after a peer's death (within 2 s), a timeout or a mismatch; the group is
//             dead afterwards. ConfigError, before anything is sent, for arguments that do not fit
//             the call, the same on every transport, and for an unsupported (operation, dtype).
class Communicator {
 public:
  Communicator();
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  // Whether reductions take their terms in rank order.
  virtual bool reduces_in_rank_order() const = 0;

  // data: same shape everywhere; in place, result on every rank. Comm: 2(p-1)/p * n.
  [[nodiscard]] WorkPtr all_reduce(at::Tensor data, Options options = {});
  // data: in place, result on `root` only. Comm: (p-1)/p * n, n at the root.
  [[nodiscard]] WorkPtr reduce(at::Tensor data, int root, Options options = {});
  // data: the root's values are copied to every rank. Comm: n received, (p-1) * n sent by the root.
  [[nodiscard]] WorkPtr broadcast(at::Tensor data, int root, Options options = {});
  // input: this rank's block; outputs[r]: rank r's block, shapes may differ by rank.
  // Comm: the sum of the other ranks' blocks
  [[nodiscard]] WorkPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                   Options options = {});
  // inputs[r]: contribution to rank r's output; shapes may differ by r. Comm: (p-1)/p * n.
  [[nodiscard]] WorkPtr reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                       Options options = {});
  // inputs[r] goes to rank r, outputs[r] comes from rank r. Comm: (p-1)/p * n.
  [[nodiscard]] WorkPtr all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                                   Options options = {});
  // outputs: one tensor per rank on `root`; empty elsewhere.
  // Comm: n sent, (p-1) * n received by the root
  [[nodiscard]] WorkPtr gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                               Options options = {});
  // inputs: one tensor per rank on `root`; empty elsewhere.
  // Comm: n received, (p-1) * n sent by the root
  [[nodiscard]] WorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                                Options options = {});
  // Point to point. A recv takes the oldest message with its tag from `peer`, or from any rank. If
  // the sizes or dtypes differ, both sides get a CommError. A send may wait for its recv. Comm: n.
  [[nodiscard]] WorkPtr send(at::Tensor data, int peer, Options options = {});
  [[nodiscard]] WorkPtr recv(at::Tensor data, int peer, Options options = {});
  // Like recv into a new contiguous tensor. Where ranks share memory and the peer sends symmetric
  // memory, the tensor is the peer's own memory, without a copy. The send's timeout then includes
  // the time it is read. A pair of ranks can have a few messages on loan at a time; further ones
  // are copied. Borrowed data may be sent on. Give loans back before the group is destroyed.
  // Comm: n
  [[nodiscard]] LoanPtr borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                               Options options = {});
  // Returns when every rank has arrived.
  [[nodiscard]] WorkPtr barrier(Options options = {});

  // Carries out each of the calls above. A group made of others overrides it and passes calls on;
  // it may use tags above kMostTag, up to 2^28 - 1.
  [[nodiscard]] virtual WorkPtr run(Collective call) = 0;

  // Memory on which the group's collectives are fastest. Where ranks share memory it comes from a
  // heap that all of them have mapped, so peers read and write it without copies; elsewhere it is
  // ordinary memory. Not collective. No result depends on a rank's allocations. May outlive the
  // group.
  // Throws: ConfigError when the heap is full, with the size it would need
  virtual at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) = 0;

  // From now on every call on the group throws CommError with `reason`, here and on the peers.
  // Waiting calls throw soon. The first reason stays. May be called from any thread while others
  // wait on the group.
  virtual void abort(const std::string& reason) = 0;

  // Counts how long this rank has waited for a message of `peer`, where the group knows who counts
  // waits (recorder/wait_sums.h). A collective counts its own.
  virtual void add_wait(int /*peer*/, std::chrono::nanoseconds /*waited*/) {}

  // A new group of the ranks that gave the same `color`, ordered by (key, rank). A rank with a
  // negative color takes part in the call and gets nullptr. `name` appears in errors.
  // Collective: every rank of this group
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;

 protected:
  // Refuses what no transport takes, for tensors on `device`. Drops lists that are not the root's,
  // and fills in what the ranks compare.
  // Throws: ConfigError
  void check(Collective& call, c10::DeviceType device) const;
  // What this rank sends to and expects from each rank, for a call that only moves blocks.
  Moves moves_of(const Collective& call, const FlatCollective& flat) const;
};

}  // namespace trireme::comm
