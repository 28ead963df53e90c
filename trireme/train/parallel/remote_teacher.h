// A teacher on ranks of its own (parallel.teachers): how the ranks that train ask it what it says
// of their microbatches, and how it answers. It gives the last hidden states, which are less than
// the logits; its last layer, the head, is with those that train, to whom it goes once.
//
//   first of the readers             first rank of a copy        other readers
//   ask: header, tensors  ------->   reads them in the order
//                                    in which they come
//   answer                <-------   sends the hidden states  -------> answer
//
// The ranks that learn from the same samples and have the last stage are readers of the same
// answers. They ask for the next step's microbatches before they compute this one's, so answers of
// at most two steps are under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/train/parallel/teacher_routes.h"

namespace trireme::train {

// What the teacher reads of a batch, and the tensor that it gives.
struct TeacherEdges {
  std::vector<std::string> inputs{};  // the first is that of the tokens
  std::string output{};
};

// The side of a rank that trains. Not thread safe.
class RemoteTeacher {
 public:
  // timeout: longest wait for an answer
  RemoteTeacher(TeacherEdges edges, c10::ScalarType dtype, std::chrono::milliseconds timeout);
  ~RemoteTeacher() { abandon(); }
  RemoteTeacher(const RemoteTeacher&) = delete;
  RemoteTeacher& operator=(const RemoteTeacher&) = delete;

  // Takes the head, if this rank is a reader. `ranks` must outlive this object.
  // Collective: every rank of the world; teachers call TeacherServer::send_head()
  void connect(comm::Communicator& ranks, TeacherRoutes routes);
  bool reads() const { return data_rank_ >= 0; }
  // Empty before connect(), and where answers are not read. The first tensor is [v, D].
  const std::vector<at::Tensor>& head() const { return head_; }
  const std::string& output() const { return edges_.output; }

  // Asks for batches that it has not yet asked for. Does not wait.
  void ask(const std::vector<dataset::Batch>& batches);
  // What the teacher says of them: [..., D] for tokens [...], on the CPU. Empty where answers are
  // not read. Asks first.
  // Comm:   from the teacher to each reader the hidden states; to it the tensors of the batch
  // Throws: CommError when the teacher is lost, or does not answer within the timeout
  std::vector<at::Tensor> outputs(const std::vector<dataset::Batch>& batches);
  // Waits for answers that nobody will read, and lets the teacher go.
  void leave();
  // Without leave() ends the teachers too, because the run has failed here. Uses `ranks` no more.
  void abandon();

  void begin_step() { waited_ = {}; }
  // In outputs() since begin_step().
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  struct Asked {
    at::Tensor key;  // a tensor of the batch
    at::Tensor answer;
    int teacher = 0;
    comm::WorkPtr work{};  // null: the batch is empty
  };

  void request(const dataset::Batch& batch);
  at::Tensor take(Asked& asked);

  TeacherEdges edges_;
  c10::ScalarType dtype_;
  std::chrono::milliseconds timeout_;
  comm::Communicator* ranks_ = nullptr;
  TeacherRoutes routes_;
  int64_t data_rank_ = -1;
  bool asks_ = false;
  bool has_left_ = false;
  std::vector<at::Tensor> head_;
  int64_t num_asked_ = 0;
  std::list<Asked> asked_;            // in the order of their requests
  std::list<comm::WorkPtr> sending_;  // requests under way
  std::chrono::nanoseconds waited_{0};
};

// The side of a rank that holds the teacher, or with tensor parallelism a part of a copy.
class TeacherServer {
 public:
  // copy: the ranks of one copy. Both groups must outlive the server.
  TeacherServer(comm::Communicator& ranks, TeacherRoutes routes, comm::Communicator& copy,
                TeacherEdges edges);

  // Collective: as RemoteTeacher::connect(). Every rank of the copy has the same head.
  void send_head(const std::vector<at::Tensor>& head);
  // Answers with what `read` says of a batch until all that ask have left.
  // Collective: every rank of the copy, as is `read`
  // Throws:     CommError when a rank that asks is lost or sends what is no request
  void serve(const std::function<at::Tensor(const dataset::Batch& batch)>& read);

 private:
  struct Request;
  // What waits for a data rank's next request.
  struct Asking {
    at::Tensor header{};
    comm::WorkPtr arrival{};  // null: none is awaited
  };

  int64_t await_header();
  Request receive();
  void share(Request& request);
  void answer(int64_t data_rank, const at::Tensor& output);
  bool is_first() const { return copy_.rank() == 0; }

  comm::Communicator& ranks_;
  TeacherRoutes routes_;
  comm::Communicator& copy_;
  TeacherEdges edges_;
  std::map<int64_t, Asking> asking_;  // by data rank; those that have not left
  int64_t last_asking_ = -1;
};

}  // namespace trireme::train
