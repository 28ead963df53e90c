#include "trireme/comm/rounds/round_service.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::RoundBytes;
using wire::RoundReply;
using wire::RoundRequest;

FrameWriter writer_of(RoundReply reply) { return FrameWriter(static_cast<uint8_t>(reply)); }

// The server puts frames on the wire as they are.
Bytes reply_of(FrameWriter writer) { return writer.finish(); }
Bytes reply_of(RoundReply reply) { return reply_of(writer_of(reply)); }

std::optional<RoundBytes> read_what(FrameReader& reader) {
  const int64_t what = reader.number();
  if (what != 0 && what != 1) return std::nullopt;
  return static_cast<RoundBytes>(what);
}

}  // namespace

RoundService::RoundService(const RoundServiceOptions& options)
    : options_(options), table_(options.table) {}

bool RoundService::is_done() {
  const std::lock_guard lock(mutex_);
  const RoundTable::Time now = time();
  return table_.is_finished() && table_.is_empty(now);
}

std::vector<std::string> RoundService::take_news() {
  const std::lock_guard lock(mutex_);
  time();
  return table_.take_news();
}

// A service that was stopped for longer than a lease has heard nobody, and would hold all learners
// but the first that asks then for away.
RoundTable::Time RoundService::time() {
  const RoundTable::Time read = options_.now();
  const auto lease = options_.table.lease;
  if (last_read_ && read - *last_read_ > lease) stopped_ += read - *last_read_ - lease / 2;
  last_read_ = read;
  return read - stopped_;
}

Bytes RoundService::answer(std::span<const uint8_t> request) {
  const std::lock_guard lock(mutex_);
  FrameReader reader(request);
  const auto kind = static_cast<RoundRequest>(reader.what());
  Bytes reply;
  try {
    if (kind == RoundRequest::kEnroll) {
      reply = enroll(reader);
    } else {
      Asker asker;
      const int64_t place = reader.number(), rank = reader.number();
      asker.process = reader.text();
      const bool is_valid = place >= 0 && place < kMaxRoundPlaces && rank >= 0 &&
                            rank < kMaxRoundRanks && asker.process.size() <= wire::kMaxRoundText;
      if (!reader.ok() || !is_valid) return {};
      asker.place = static_cast<int>(place);
      asker.rank = static_cast<int>(rank);
      reply = answer_known(kind, asker, reader);
    }
  } catch (const ConfigError& error) {
    reply = reply_of(writer_of(RoundReply::kRefused).text(error.what()));
  }
  follow_decision();
  return reply;
}

Bytes RoundService::answer_known(RoundRequest request, const Asker& asker, FrameReader& reader) {
  if (!table_.is_known(asker.place, asker.rank, asker.process, time())) {
    return reply_of(RoundReply::kUnknown);
  }
  switch (request) {
    case RoundRequest::kPut: return put(asker, reader);
    case RoundRequest::kOutcome: return outcome(asker, reader);
    case RoundRequest::kGet: return get(asker, reader);
    case RoundRequest::kLeave:
      if (!reader.at_end()) return {};
      table_.leave(asker.place, asker.rank, asker.process);
      return reply_of(RoundReply::kDone);
    case RoundRequest::kEnroll: break;
  }
  return {};
}

void RoundService::check_memory(int64_t more) const {
  double needed = static_cast<double>(more);
  for (const auto* parcels : {&messages_, &decided_}) {
    for (const auto& [key, parcel] : *parcels) needed += static_cast<double>(parcel.size);
  }
  for (const auto& [rank, parcel] : state_) needed += static_cast<double>(parcel.size);
  TRIREME_CHECK(needed <= static_cast<double>(options_.memory_bytes),
                "the learners' messages need ", needed / 1e9,
                " GB of memory in their service, which may take ",
                static_cast<double>(options_.memory_bytes) / 1e9,
                "; raise its --memory, or send less (outer.wire, outer.kept)");
}

Bytes RoundService::enroll(FrameReader& reader) {
  const std::optional<RoundMember> member = wire::read_member(reader);
  if (!member) return {};
  wire::RoundWelcome welcome;
  welcome.standing = table_.enroll(*member, time());
  follow_decision();
  num_ranks_ = member->num_ranks;
  std::string& process = processes_[member->place];
  if (process != member->process) {
    process = member->process;
    std::erase_if(messages_, [&](const auto& each) { return each.first.first == member->place; });
  }
  welcome.head = table_.head_step().value_or(-1);
  welcome.state = state_step();
  welcome.donor = table_.last_donor(time());
  welcome.lease_ms = std::max<int64_t>(options_.table.lease.count(), 1);
  FrameWriter writer = writer_of(RoundReply::kDone);
  wire::write_welcome(writer, welcome);
  return reply_of(std::move(writer));
}

// A message may come in pieces, the same ones again after a lost connection, and from the beginning
// for another round.
Bytes RoundService::put(const Asker& asker, FrameReader& reader) {
  const auto what = read_what(reader);
  const int64_t step = reader.number(), size = reader.number(), offset = reader.number();
  const auto bytes = reader.bytes();
  if (!what || !reader.ok() || !reader.at_end() || size < 0) return {};
  const RoundTable::Time now = time();
  Parcel* parcel = nullptr;
  if (*what == RoundBytes::kState) {
    if (!table_.has_head(asker.place, step)) return reply_of(RoundReply::kGone);
    parcel = &state_[asker.rank];
  } else {
    if (step <= table_.head_step().value_or(-1)) return reply_of(RoundReply::kGone);
    parcel = &messages_[{asker.place, asker.rank}];
  }
  if (parcel->step != step || parcel->size != size) {
    *parcel = {};
    check_memory(size);
    *parcel = {.step = step, .size = size};
  }
  if (offset == std::ssize(parcel->bytes)) {
    if (std::ssize(bytes) > parcel->size - std::ssize(parcel->bytes)) return {};
    parcel->bytes.insert(parcel->bytes.end(), bytes.begin(), bytes.end());
  }
  const int64_t there = std::ssize(parcel->bytes);
  if (*what == RoundBytes::kMessage) offer_again(asker, now);
  return reply_of(std::move(writer_of(RoundReply::kDone).number(there)));
}

// The table forgets offers when it begins anew.
void RoundService::offer_again(const Asker& asker, RoundTable::Time now) {
  const auto found = messages_.find({asker.place, asker.rank});
  if (found == messages_.end() || !found->second.is_whole()) return;
  table_.offer(asker.place, asker.rank, found->second.step, now);
}

Bytes RoundService::outcome(const Asker& asker, FrameReader& reader) {
  const int64_t step = reader.number();
  if (!reader.ok() || !reader.at_end()) return {};
  const RoundTable::Time now = time();
  offer_again(asker, now);
  follow_decision();
  const RoundOutcome outcome = table_.outcome(asker.place, step, now);
  follow_decision();
  // A round that was decided and then undone has lost its messages.
  const auto found = messages_.find({asker.place, asker.rank});
  const bool has_message =
      found != messages_.end() && found->second.step == step && found->second.is_whole();
  if (outcome.kind == RoundOutcome::Kind::kOpen && !has_message) return reply_of(RoundReply::kGone);
  FrameWriter writer = writer_of(RoundReply::kDone);
  wire::write_outcome(writer, outcome);
  return reply_of(std::move(writer));
}

Bytes RoundService::get(const Asker& asker, FrameReader& reader) {
  const auto what = read_what(reader);
  const int64_t step = reader.number(), place = reader.number(), offset = reader.number(),
                most = reader.number();
  if (!what || !reader.ok() || !reader.at_end() || offset < 0 || most < 0) return {};
  const Parcel* parcel = nullptr;
  if (*what == RoundBytes::kState) {
    if (state_step() == step && step >= 0) {
      parcel = &state_.at(asker.rank);
      table_.note_fetch(asker.place);
    }
  } else if (place >= 0 && place < kMaxRoundPlaces) {
    const auto found = decided_.find({static_cast<int>(place), asker.rank});
    if (found != decided_.end() && found->second.step == step) parcel = &found->second;
  }
  if (parcel == nullptr || offset > std::ssize(parcel->bytes)) return reply_of(RoundReply::kGone);
  const int64_t size = std::min({most, wire::kRoundPieceBytes, std::ssize(parcel->bytes) - offset});
  const auto piece = std::span(parcel->bytes).subspan(static_cast<size_t>(offset));
  return reply_of(std::move(writer_of(RoundReply::kDone)
                                .number(parcel->size)
                                .bytes(piece.first(static_cast<size_t>(size)))));
}

// Of the state that a donor has sent in whole, as long as the next round has not been decided.
int64_t RoundService::state_step() const {
  const bool is_whole = !state_.empty() && std::ssize(state_) == num_ranks_ &&
                        std::ranges::all_of(state_, [&](const auto& each) {
                          return each.second.is_whole() && each.second.step == table_.head_step();
                        });
  return is_whole ? *table_.head_step() : -1;
}

void RoundService::follow_decision() {
  const std::optional<int64_t> step = table_.decided_step();
  if (step == decided_step_) return;
  decided_step_ = step;
  decided_.clear();
  state_.clear();
  if (!step) return;
  for (auto& [key, parcel] : messages_) {
    if (parcel.step == *step && parcel.is_whole()) decided_[key] = std::move(parcel);
  }
  messages_.clear();
}

std::unique_ptr<StoreServer> serve_rounds(RoundService& service, const std::string& address,
                                          std::function<void(const std::string&)> on_refused) {
  const TcpAddress parsed = parse_tcp_address("tcp://" + address);
  const std::vector<Endpoint> endpoints = resolve(parsed);
  const std::string token = job_token();
  TRIREME_CHECK(!token.empty() || std::ranges::all_of(endpoints, &Endpoint::is_loopback),
                "other hosts can reach the learners' service at ", address,
                ", and there is no token to keep strangers out; ", kTokenAdvice);
  return std::make_unique<StoreServer>(
      listen_on(endpoints, parsed),
      StoreServerOptions{
          .token = token,
          .job = kRoundsJob,
          .size = 0,
          .answer =
              [&service](std::span<const uint8_t> request) { return service.answer(request); },
          .on_refused = std::move(on_refused)});
}

}  // namespace trireme::comm
