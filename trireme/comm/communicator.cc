#include "trireme/comm/communicator.h"

#include <iterator>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/vector_math.h"
#include "trireme/comm/loan.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// A call is a value, so that what all transports must agree on is said once: which tensors a kind
// has, what the ranks compare, how many bytes cross, and where a result lies. A method only fills
// in a Collective, and what distinguishes one kind from another is a row of kRules. When each
// transport had checks of its own they drifted apart, in the largest tag and in which blocks must
// fit. Arguments are checked before anything is sent: a program that makes the same wrong call on
// every rank gets a ConfigError and still has its group. A small all_reduce in shared memory is so
// fast that an allocation or the clearing of a Collective shows, so its way through here has
// neither.

namespace {

using Kind = Collective::Kind;
using Tensors = std::vector<at::Tensor>;

// On which ranks a call writes data.
// This is what a transport that worked on a contiguous copy writes back. A reduce, for one, must
// leave the other ranks' tensors as they are.
enum class Written { kNowhere, kEverywhere, kAtRoot, kBesideRoot };

struct Rules {
  const char* name;
  bool has_data = false;
  bool has_outputs = false;
  bool has_inputs = false;
  bool has_root = false;  // lists are the root's
  bool reduces = false;
  Written written = Written::kNowhere;
};

// In the order of Kind.
constexpr Rules kRules[] = {
    {.name = "all_reduce", .has_data = true, .reduces = true, .written = Written::kEverywhere},
    {.name = "reduce",
     .has_data = true,
     .has_root = true,
     .reduces = true,
     .written = Written::kAtRoot},
    {.name = "broadcast", .has_data = true, .has_root = true, .written = Written::kBesideRoot},
    {.name = "all_gather", .has_data = true, .has_outputs = true},
    {.name = "reduce_scatter",
     .has_data = true,
     .has_inputs = true,
     .reduces = true,
     .written = Written::kEverywhere},
    {.name = "all_to_all", .has_outputs = true, .has_inputs = true},
    {.name = "gather", .has_data = true, .has_outputs = true, .has_root = true},
    {.name = "scatter",
     .has_data = true,
     .has_inputs = true,
     .has_root = true,
     .written = Written::kEverywhere},
    {.name = "send", .has_data = true},
    {.name = "recv", .has_data = true, .written = Written::kEverywhere},
    {.name = "barrier"},
};
static_assert(std::size(kRules) == static_cast<size_t>(Kind::kBarrier) + 1, "kBarrier is the last");

const Rules& rules_of(Kind kind) { return kRules[static_cast<size_t>(kind)]; }

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

int64_t bytes_of(const Tensors& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += bytes_of(tensor);
  return sum;
}

// Checks that a small all_reduce does not need stay out of line: it has no time for their stack.

void check_tag(const char* operation, const Options& options) {
  TRIREME_CHECK(options.tag >= 0 && options.tag <= kMostTag, operation, ": tag ", options.tag,
                "; expected 0 to ", kMostTag);
}

[[gnu::noinline]] void check_rank(const char* operation, const Communicator& group, int root) {
  TRIREME_CHECK(root >= 0 && root < group.size(), operation, ": rank ", root, " is not in group ",
                group.name(), " of ", group.size(), " ranks");
}

[[gnu::noinline]] void check_peer(const char* operation, const Communicator& group, int peer) {
  check_rank(operation, group, peer);
  TRIREME_CHECK(peer != group.rank(), operation, ": rank ", peer,
                " is this rank; expected another");
}

[[noreturn]] [[gnu::noinline]] void refuse_tensor(const char* operation, const at::Tensor& tensor,
                                                  c10::DeviceType device) {
  throw ConfigError(
      concat(operation, ": got ",
             tensor.defined() ? concat("a tensor on ", tensor.device()) : "an undefined tensor",
             device == c10::DeviceType::CPU
                 ? "; expected a dense CPU tensor"
                 : concat("; expected a dense tensor on ", c10::DeviceTypeName(device, true))));
}

void check_tensor(const char* operation, const at::Tensor& tensor, c10::DeviceType device) {
  const bool is_fit =
      tensor.defined() && tensor.device().type() == device && tensor.layout() == at::kStrided;
  if (!is_fit) refuse_tensor(operation, tensor, device);
}

void check_one_per_rank(const char* operation, const Communicator& group, const Tensors& tensors,
                        c10::DeviceType device) {
  TRIREME_CHECK(tensors.size() == static_cast<size_t>(group.size()), operation, ": got ",
                tensors.size(), " tensors, expected one for each of the ", group.size(),
                " ranks of group ", group.name());
  for (const at::Tensor& tensor : tensors) check_tensor(operation, tensor, device);
}

void check_dtypes(const char* operation, const Tensors& tensors, const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    TRIREME_CHECK(tensor.scalar_type() == like.scalar_type(), operation, ": got tensors of ",
                  c10::toString(tensor.scalar_type()), " and ", c10::toString(like.scalar_type()),
                  "; expected one dtype");
  }
}

// What this rank sends itself fits where it receives it.
void check_own_block(const char* operation, const Collective& call, int rank) {
  // No peer sees this block, so the ranks' comparison cannot find the error, and a transport would
  // meet it only after it has sent the others.
  const auto own = static_cast<size_t>(rank);
  if (!call.data.defined()) {
    TRIREME_CHECK(call.outputs[own].nbytes() == call.inputs[own].nbytes(), operation,
                  ": this rank keeps ", call.inputs[own].nbytes(),
                  " bytes for itself and their place has ", call.outputs[own].nbytes());
    return;
  }
  for (const Tensors* list : {&call.outputs, &call.inputs}) {
    if (list->empty()) continue;
    TRIREME_CHECK((*list)[own].nbytes() == call.data.nbytes(), operation,
                  ": this rank's own tensor has ", call.data.nbytes(),
                  " bytes and its block of the list ", (*list)[own].nbytes());
  }
}

// Member by member: the compiler clears an aggregate of this size with an instruction that takes a
// tenth of a small all_reduce.
Collective call_on(Kind kind, at::Tensor&& data, const Options& options, int peer = -1) {
  Collective call;
  call.kind = kind;
  call.data = std::move(data);
  call.peer = peer;
  call.options = options;
  return call;
}

[[gnu::noinline]] void check_borrow(Collective& call, c10::DeviceType device) {
  const Borrowed& borrowed = *call.borrowed;
  const at::Device place = borrowed.options.device();
  TRIREME_CHECK(place.type() == device, "borrow: the device is ", place, "; expected ",
                device == c10::DeviceType::CPU ? "the CPU" : c10::DeviceTypeName(device, true));
  call.compared.dtype = static_cast<int>(c10::typeMetaToScalarType(borrowed.options.dtype()));
  call.compared.elements = c10::multiply_integers(borrowed.sizes);
}

void check_data(const Rules& rules, Collective& call, c10::DeviceType device) {
  check_tensor(rules.name, call.data, device);
  call.compared.dtype = static_cast<int>(call.data.scalar_type());
  call.compared.elements = call.data.numel();
}

[[gnu::noinline]] void check_lists(const Rules& rules, Collective& call, const Communicator& group,
                                   c10::DeviceType device) {
  if (rules.has_root && group.rank() != call.peer) {
    call.outputs.clear();
    call.inputs.clear();
  } else {
    if (rules.has_outputs) check_one_per_rank(rules.name, group, call.outputs, device);
    if (rules.has_inputs) check_one_per_rank(rules.name, group, call.inputs, device);
  }
  if (rules.has_data) check_tensor(rules.name, call.data, device);
  const at::Tensor& like = call.first_tensor();
  check_dtypes(rules.name, call.outputs, like);
  check_dtypes(rules.name, call.inputs, like);
  check_own_block(rules.name, call, group.rank());
  call.compared.dtype = static_cast<int>(like.scalar_type());
  // Where every rank knows all sizes, a hash compares them. With a root and in an all_to_all a rank
  // knows only its own, and the transport compares what each pair says.
  if (rules.has_data && !rules.has_root) {
    const Tensors& blocks = rules.has_outputs ? call.outputs : call.inputs;
    call.compared.elements = total_elements(blocks);
    call.compared.block_sizes = hash_of_sizes(blocks);
  }
}

}  // namespace

const char* name_of(Kind kind) { return rules_of(kind).name; }

bool Collective::writes_data(int rank) const {
  switch (rules_of(kind).written) {
    case Written::kNowhere: return false;
    case Written::kEverywhere: return true;
    case Written::kAtRoot: return rank == peer;
    case Written::kBesideRoot: return rank != peer;
  }
  return false;
}

int64_t wire_bytes(const Collective& call, int rank, int size) {
  const int64_t others = size - 1;
  const int64_t own = call.borrowed ? call.borrowed->num_bytes() : bytes_of(call.data);
  const bool is_root = rank == call.peer;
  switch (call.kind) {
    case Kind::kAllReduce: return 2 * others * own / size;
    case Kind::kReduce: return is_root ? own : others * own / size;
    case Kind::kBroadcast:
    case Kind::kGather:
    case Kind::kScatter: return is_root ? others * own : own;
    case Kind::kAllGather: return bytes_of(call.outputs) - own;
    case Kind::kReduceScatter:
    case Kind::kAllToAll: return others * bytes_of(call.inputs) / size;
    case Kind::kSend:
    case Kind::kRecv: return own;
    case Kind::kBarrier: return 0;
  }
  return 0;
}

void Communicator::check(Collective& call, c10::DeviceType device) const {
  const Rules& rules = rules_of(call.kind);
  call.compared = {.operation = rules.name};
  if (rules.has_root) {
    check_rank(rules.name, *this, call.peer);
    call.compared.root = call.peer;
  }
  if (call.is_message() && (call.kind == Kind::kSend || call.peer != kAnySource)) {
    check_peer(call.borrowed ? "borrow" : rules.name, *this, call.peer);
  }
  if (rules.reduces) call.compared.reduce_op = static_cast<int>(call.options.operation);
  if (call.borrowed) return check_borrow(call, device);
  if (rules.has_outputs || rules.has_inputs) return check_lists(rules, call, *this, device);
  if (rules.has_data) check_data(rules, call, device);
}

Moves Communicator::moves_of(const Collective& call, const FlatCollective& flat) const {
  Moves moves{flat.inputs.flat(), flat.outputs.flat()};
  const auto ranks = static_cast<size_t>(size());
  const auto root = static_cast<size_t>(call.peer);
  const at::Tensor data = flat.data.flat();
  moves.to.resize(ranks);
  moves.from.resize(ranks);
  switch (call.kind) {
    case Kind::kAllGather: moves.to.assign(ranks, data); break;
    case Kind::kBroadcast:
      if (rank() == call.peer) moves.to.assign(ranks, data);
      moves.from[root] = data;
      break;
    case Kind::kGather: moves.to[root] = data; break;
    case Kind::kScatter: moves.from[root] = data; break;
    default: break;  // lists only
  }
  return moves;
}

Communicator::Communicator() { settle_vector_math(); }

WorkPtr Communicator::all_reduce(at::Tensor data, Options options) {
  return run(call_on(Kind::kAllReduce, std::move(data), options));
}

WorkPtr Communicator::reduce(at::Tensor data, int root, Options options) {
  return run(call_on(Kind::kReduce, std::move(data), options, root));
}

WorkPtr Communicator::broadcast(at::Tensor data, int root, Options options) {
  return run(call_on(Kind::kBroadcast, std::move(data), options, root));
}

WorkPtr Communicator::all_gather(Tensors outputs, at::Tensor input, Options options) {
  return run({.kind = Kind::kAllGather,
              .data = std::move(input),
              .outputs = std::move(outputs),
              .options = options});
}

WorkPtr Communicator::reduce_scatter(at::Tensor output, Tensors inputs, Options options) {
  return run({.kind = Kind::kReduceScatter,
              .data = std::move(output),
              .inputs = std::move(inputs),
              .options = options});
}

WorkPtr Communicator::all_to_all(Tensors outputs, Tensors inputs, Options options) {
  return run({.kind = Kind::kAllToAll,
              .outputs = std::move(outputs),
              .inputs = std::move(inputs),
              .options = options});
}

WorkPtr Communicator::gather(Tensors outputs, at::Tensor input, int root, Options options) {
  return run({.kind = Kind::kGather,
              .data = std::move(input),
              .outputs = std::move(outputs),
              .peer = root,
              .options = options});
}

WorkPtr Communicator::scatter(at::Tensor output, Tensors inputs, int root, Options options) {
  return run({.kind = Kind::kScatter,
              .data = std::move(output),
              .inputs = std::move(inputs),
              .peer = root,
              .options = options});
}

WorkPtr Communicator::send(at::Tensor data, int peer, Options options) {
  check_tag("send", options);
  return run(call_on(Kind::kSend, std::move(data), options, peer));
}

WorkPtr Communicator::recv(at::Tensor data, int peer, Options options) {
  check_tag("recv", options);
  return run(call_on(Kind::kRecv, std::move(data), options, peer));
}

LoanPtr Communicator::borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                             Options options) {
  check_tag("borrow", options);
  // Shared, because the transport fills it in when the message comes, and the loan may outlive the
  // call.
  const auto borrowed = std::make_shared<Borrowed>(Borrowed{sizes.vec(), dtype});
  WorkPtr work = run({.kind = Kind::kRecv, .peer = peer, .options = options, .borrowed = borrowed});
  return std::make_shared<ReceivedLoan>(
      std::move(work), std::shared_ptr<const at::Tensor>(borrowed, &borrowed->data));
}

WorkPtr Communicator::barrier(Options options) { return run(call_on(Kind::kBarrier, {}, options)); }

std::string to_string(const Call& call) {
  if (call.dtype < 0) return call.operation;
  std::string text =
      concat(call.operation, "(", c10::toString(static_cast<c10::ScalarType>(call.dtype)));
  if (call.elements >= 0) text += concat(", ", call.elements, " elements");
  if (call.block_sizes != 0) text += concat(" in blocks ", std::hex, call.block_sizes);
  if (call.reduce_op >= 0) text += concat(", ", name_of(static_cast<ReduceOp>(call.reduce_op)));
  if (call.root >= 0) text += concat(", root ", call.root);
  return text + ")";
}

}  // namespace trireme::comm
