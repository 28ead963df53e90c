#include "trireme/parallel/server/server_client.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/server/state/shard_state.h"
#include "trireme/parallel/server/worker_link.h"

namespace trireme::parallel {

// Calls of the model's thread become requests, one per piece, and the hub's thread calls
// on_answer() when one is answered. Counters of what is missing are under the link's mutex, and
// every wait is for one of them to become zero. A request is added to the counter before it is
// sent; its answer may come before ask() returns. Each pull has a number of its own, because after
// a change of a chain two servers may answer one request, and the second answer would be taken for
// that to the next pull. Gradients are not copied: the caller keeps them unchanged until
// wait_pushed(). A push that is sent again is a copy (worker_link.cc), since by then the first
// one's answer may have released the caller.

namespace {

Outstanding request_of(const Piece& piece, size_t index, FrameKind kind, int64_t step) {
  Outstanding request;
  request.frame.header = {.kind = kind,
                          .shard = static_cast<uint32_t>(piece.shard),
                          .piece = static_cast<uint32_t>(index),
                          .step = step};
  return request;
}

at::Tensor rows_of(const at::Tensor& whole, const Piece& piece) {
  return whole.view({-1, piece.width}).narrow(0, piece.first_row, piece.rows);
}

// Writes `rows`, counted within the piece, to the beginning of `payload`.
void write_rows(const Piece& piece, std::span<const int64_t> rows, at::Tensor& payload) {
  auto* const bytes = static_cast<uint8_t*>(payload.data_ptr());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i] - piece.first_row;
    std::memcpy(bytes + i * sizeof(row), &row, sizeof(row));
  }
}

// The payload of a push of `rows`; their gradients begin at row `begin` of `gradients`.
at::Tensor row_payload(const Piece& piece, std::span<const int64_t> rows,
                       const at::Tensor& gradients, int64_t begin) {
  const int64_t count = std::ssize(rows);
  const int64_t index_bytes = count * int64_t{sizeof(int64_t)};
  at::Tensor payload = at::empty({index_bytes + count * piece.row_bytes()}, at::kByte);
  write_rows(piece, rows, payload);
  const auto* const values = static_cast<const uint8_t*>(gradients.const_data_ptr());
  std::memcpy(static_cast<uint8_t*>(payload.data_ptr()) + index_bytes,
              values + begin * piece.row_bytes(), static_cast<size_t>(count * piece.row_bytes()));
  return payload;
}

}  // namespace

class ServerClient::Impl {
 public:
  Impl(const ServerRun& run, const ServerClientOptions& options) : run_(run), link_(run, options) {
    for (const Piece& piece : run.pieces) {
      num_parameters_ = std::max(num_parameters_, piece.parameter + 1);
    }
    // Zero from the start: a parameter that is never pulled is not waited for.
    unpulled_.resize(static_cast<size_t>(num_parameters_));
    pulled_.resize(run.pieces.size());
    link_.wait("waiting for the run's servers and workers", [&] { return link_.has_view(); });
    take_part();
  }

  int64_t first_step() const { return first_step_; }
  ClientCounts counts() const {
    const HubCounts bytes = link_.counts();
    return {bytes.sent_bytes, bytes.received_bytes, link_.resent()};
  }

  void pull(int64_t step, const std::vector<at::Tensor>& destinations) {
    // Destinations of the pull before may be in use by its answers.
    wait_all_pulled();
    TRIREME_ASSERT(std::ssize(destinations) <= num_parameters_, "more tensors than parameters");
    ++num_pulls_;
    std::vector<Outstanding> requests;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      if (piece.parameter >= std::ssize(destinations)) continue;
      const at::Tensor& whole = destinations[static_cast<size_t>(piece.parameter)];
      if (!whole.defined()) continue;
      TRIREME_ASSERT(whole.is_contiguous() && whole.scalar_type() == piece.dtype,
                     "a contiguous destination");
      requests.push_back(pull_of(FrameKind::kPull, i, step));
      fill_on_answer(requests.back(), rows_of(whole, piece), &pulled_[i]);
    }
    step_ = step;
    send_pulls(std::move(requests));
  }

  void pull_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& destination) {
    TRIREME_ASSERT(destination.is_contiguous() && destination.size(0) == std::ssize(rows),
                   "a row for each");
    std::vector<Outstanding> requests;
    ++num_pulls_;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      if (piece.parameter != parameter) continue;
      // Rows are ascending, so a piece has a range of them.
      const auto begin = std::ranges::lower_bound(rows, piece.first_row);
      const auto end = std::ranges::lower_bound(rows, piece.first_row + piece.rows);
      if (begin == end) continue;
      requests.push_back(pull_of(FrameKind::kPull, i, step));
      Frame& frame = requests.back().frame;
      frame.header.num_rows = static_cast<uint32_t>(end - begin);
      frame.payload = at::empty({(end - begin) * int64_t{sizeof(int64_t)}}, at::kByte);
      write_rows(piece, {begin, end}, frame.payload);
      fill_on_answer(requests.back(), destination.narrow(0, begin - rows.begin(), end - begin));
    }
    send_pulls(std::move(requests));
  }

  void wait_pulled(int64_t parameter) {
    link_.wait(concat("pull of parameter ", parameter, " before step ", step_),
               [&] { return unpulled_.at(static_cast<size_t>(parameter)) == 0; });
  }
  void wait_all_pulled() {
    link_.wait(concat("pull before step ", step_),
               [&] { return std::ranges::all_of(unpulled_, [](int64_t n) { return n == 0; }); });
  }

  void push(int64_t step, int64_t parameter, const at::Tensor& gradient, double learning_rate) {
    std::vector<Outstanding> requests;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      if (piece.parameter != parameter) continue;
      TRIREME_ASSERT(
          gradient.is_contiguous() && gradient.scalar_type() == piece.dtype && !piece.is_sparse,
          "a contiguous gradient of a dense parameter");
      requests.push_back(push_of(piece, i, step, learning_rate));
      requests.back().frame.payload = bytes_of(rows_of(gradient, piece));
    }
    send_pushes(std::move(requests));
  }

  void push_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                 const at::Tensor& gradients, double learning_rate) {
    std::vector<Outstanding> requests;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      if (piece.parameter != parameter) continue;
      TRIREME_ASSERT(
          gradients.is_contiguous() && gradients.scalar_type() == piece.dtype && piece.is_sparse,
          "contiguous gradients of a sparse parameter");
      const auto begin = std::ranges::lower_bound(rows, piece.first_row);
      const auto end = std::ranges::lower_bound(rows, piece.first_row + piece.rows);
      const std::span<const int64_t> mine(begin, end);
      requests.push_back(push_of(piece, i, step, learning_rate));
      Frame& frame = requests.back().frame;
      frame.header.num_rows = static_cast<uint32_t>(mine.size());
      // A push without rows goes out as well: a synchronous step waits for each worker at each
      // piece.
      frame.payload = row_payload(piece, mine, gradients, begin - rows.begin());
    }
    send_pushes(std::move(requests));
  }

  void push_difference(int64_t step, int64_t parameter, double weight,
                       const std::function<at::Tensor(int64_t, int64_t)>& payload) {
    std::vector<Outstanding> requests;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      if (piece.parameter != parameter) continue;
      requests.push_back(push_of(piece, i, step, weight));
      requests.back().frame.header.base = pulled_[i].version;
      requests.back().frame.payload =
          payload(piece.first_row * piece.width, piece.numel()).contiguous();
    }
    send_pushes(std::move(requests));
  }

  Pulled pulled(int64_t parameter) {
    const std::lock_guard lock(link_.mutex());
    std::optional<Pulled> least;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      if (run_.pieces[i].parameter != parameter) continue;
      if (!least) least = pulled_[i];
      least->version = std::min(least->version, pulled_[i].version);
      least->workers = std::min(least->workers, pulled_[i].workers);
      least->is_late = least->is_late || pulled_[i].is_late;
    }
    return least.value_or(Pulled());
  }

  void set_away(bool is_away) {
    std::vector<int64_t> steps(static_cast<size_t>(run_.shards), -1);
    ask_shards(EventKind::kAway, is_away ? 1 : 0, steps);
  }

  void wait_pushed() {
    link_.wait("push", [&] { return unpushed_ == 0; });
  }

  at::Tensor pull_state(int64_t parameter, int64_t state, int64_t begin, int64_t end) {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < run_.pieces.size(); ++i) {
      const Piece& piece = run_.pieces[i];
      const int64_t first = std::max(begin, piece.first_row);
      const int64_t last = std::min(end, piece.first_row + piece.rows);
      if (piece.parameter != parameter || first >= last) continue;
      parts.push_back(pull_piece_state(i, state, first - piece.first_row, last - first));
      if (!parts.back().defined()) return {};
    }
    return parts.empty() ? at::Tensor() : at::cat(parts);
  }
  at::Tensor pull_state(int64_t parameter, int64_t state) {
    return pull_state(parameter, state, 0, std::numeric_limits<int64_t>::max());
  }

  void leave() {
    // All of its effects are in the servers before it leaves.
    wait_all_pulled();
    wait_pushed();
    link_.say_goodbye();
  }

 private:
  // Each shard says which step all others have finished. The first step is the one after the latest
  // of these, and every shard learns that nothing before it will come.
  void take_part() {
    std::vector<int64_t> bases(static_cast<size_t>(run_.shards), -1);
    // First a question, -1, and then the answer to it: shards may be in different steps.
    ask_shards(EventKind::kAdvance, -1, bases);
    first_step_ = std::ranges::max(bases);
    ask_shards(EventKind::kAdvance, first_step_++, bases);
  }

  // Sends an event to the shards whose last answer had another step, and notes theirs.
  void ask_shards(EventKind kind, int64_t step, std::vector<int64_t>& answers) {
    int64_t missing = 0;
    std::vector<Outstanding> requests;
    for (int64_t shard = 0; shard < run_.shards; ++shard) {
      int64_t& answered = answers[static_cast<size_t>(shard)];
      if (step >= 0 && answered == step) continue;
      ++missing;
      requests.push_back(request_of(Piece{.shard = shard}, 0, FrameKind::kEvent, step));
      requests.back().frame.header.part = static_cast<uint16_t>(kind);
      requests.back().on_answer = [&answered, &missing](const Frame& answer) {
        answered = answer.header.step;
        --missing;
      };
    }
    link_.ask(std::move(requests));
    link_.wait(kind == EventKind::kAway ? "telling that this worker is away" : "joining the run",
               [&] { return missing == 0; });
  }

  Outstanding push_of(const Piece& piece, size_t index, int64_t step, double learning_rate) {
    Outstanding request = request_of(piece, index, FrameKind::kEvent, step);
    request.frame.header.part = static_cast<uint16_t>(EventKind::kPush);
    request.frame.header.learning_rate = learning_rate;
    request.on_answer = [this](const Frame&) { --unpushed_; };
    return request;
  }

  Outstanding pull_of(FrameKind kind, size_t index, int64_t step) const {
    Outstanding request = request_of(run_.pieces[index], index, kind, step);
    request.frame.header.part = num_pulls_;
    return request;
  }

  // The answer fills all of `to`, and `pulled`, if it is not null.
  void fill_on_answer(Outstanding& request, at::Tensor to, Pulled* pulled = nullptr) {
    request.on_answer = [this, pulled, parameter = parameter_of(request),
                         to = std::move(to)](const Frame& answer) {
      // A server that sends another size is of another run.
      const auto expected = static_cast<int64_t>(to.nbytes());
      const int64_t bytes = answer.payload.defined() ? answer.payload.numel() : 0;
      TRIREME_CHECK(bytes == expected, "a server sent ", bytes, " bytes of weights; expected ",
                    expected);
      std::memcpy(to.data_ptr(), answer.payload.const_data_ptr(), to.nbytes());
      if (pulled != nullptr) {
        *pulled = {answer.header.sequence, int64_t{answer.header.num_rows},
                   answer.header.base != 0};
      }
      --unpulled_[parameter];
    };
  }
  size_t parameter_of(const Outstanding& request) const {
    return static_cast<size_t>(run_.pieces[request.frame.header.piece].parameter);
  }

  void send_pulls(std::vector<Outstanding> requests) {
    {
      const std::lock_guard lock(link_.mutex());
      for (const Outstanding& request : requests) ++unpulled_[parameter_of(request)];
    }
    link_.ask(std::move(requests));
  }

  void send_pushes(std::vector<Outstanding> requests) {
    {
      const std::lock_guard lock(link_.mutex());
      unpushed_ += std::ssize(requests);
    }
    link_.ask(std::move(requests));
  }

  at::Tensor pull_piece_state(size_t index, int64_t state, int64_t first_row, int64_t num_rows) {
    const Piece& piece = run_.pieces[index];
    ++num_pulls_;
    Outstanding request = pull_of(FrameKind::kPullState, index, 0);
    request.frame.header.num_rows = static_cast<uint32_t>(state);
    const int64_t range[] = {first_row, num_rows};
    request.frame.payload = at::empty({sizeof(range)}, at::kByte);
    std::memcpy(request.frame.payload.data_ptr(), range, sizeof(range));
    at::Tensor values;
    bool is_done = false;
    request.on_answer = [&](const Frame& answer) {
      is_done = true;
      if (answer.header.step == 0) return;
      const at::Tensor bytes =
          answer.payload.defined() ? answer.payload : at::empty({0}, at::kByte);
      const int64_t expected = num_rows * piece.row_bytes();
      const bool has_rows = bytes.numel() == expected;
      // An optimizer may keep one number per row.
      TRIREME_CHECK(has_rows || bytes.numel() * piece.width == expected, "a server sent ",
                    bytes.numel(), " bytes of an optimizer's tensor; expected ", expected,
                    " or one number per row");
      values = bytes.view(piece.dtype);
      if (has_rows) values = values.view({num_rows, piece.width});
    };
    std::vector<Outstanding> requests;
    requests.push_back(std::move(request));
    link_.ask(std::move(requests));
    link_.wait("pull of an optimizer's state", [&] { return is_done; });
    return values;
  }

  const ServerRun run_;
  int64_t num_parameters_ = 0;
  int64_t first_step_ = 1;
  int64_t step_ = 0;  // of the last pull
  // Tells pulls of the same piece and step apart: after a chain's change two servers may answer
  // one.
  uint16_t num_pulls_ = 0;
  // Under the link's mutex.
  std::vector<int64_t> unpulled_;  // pieces of each parameter
  std::vector<Pulled> pulled_;     // by piece
  int64_t unpushed_ = 0;
  WorkerLink link_;
};

ServerClient::ServerClient(const ServerRun& run, const ServerClientOptions& options)
    : impl_(std::make_unique<Impl>(run, options)) {}
ServerClient::~ServerClient() = default;
int64_t ServerClient::first_step() const { return impl_->first_step(); }
void ServerClient::pull(int64_t step, const std::vector<at::Tensor>& destinations) {
  impl_->pull(step, destinations);
}
void ServerClient::pull_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                             const at::Tensor& destination) {
  impl_->pull_rows(step, parameter, rows, destination);
}
void ServerClient::wait_pulled(int64_t parameter) { impl_->wait_pulled(parameter); }
void ServerClient::wait_all_pulled() { impl_->wait_all_pulled(); }
void ServerClient::push(int64_t step, int64_t parameter, const at::Tensor& gradient,
                        double learning_rate) {
  impl_->push(step, parameter, gradient, learning_rate);
}
void ServerClient::push_rows(int64_t step, int64_t parameter, std::span<const int64_t> rows,
                             const at::Tensor& gradients, double learning_rate) {
  impl_->push_rows(step, parameter, rows, gradients, learning_rate);
}
void ServerClient::push_difference(
    int64_t step, int64_t parameter, double weight,
    const std::function<at::Tensor(int64_t first, int64_t count)>& payload) {
  impl_->push_difference(step, parameter, weight, payload);
}
ServerClient::Pulled ServerClient::pulled(int64_t parameter) const {
  return impl_->pulled(parameter);
}
void ServerClient::set_away(bool is_away) { impl_->set_away(is_away); }
void ServerClient::wait_pushed() { impl_->wait_pushed(); }
at::Tensor ServerClient::pull_state(int64_t parameter, int64_t state, int64_t begin, int64_t end) {
  return impl_->pull_state(parameter, state, begin, end);
}
at::Tensor ServerClient::pull_state(int64_t parameter, int64_t state) {
  return impl_->pull_state(parameter, state);
}
void ServerClient::leave() { impl_->leave(); }
ClientCounts ServerClient::counts() const { return impl_->counts(); }

}  // namespace trireme::parallel
