#include "tests/comm/recording_suite.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/coalesced.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {
namespace {

// Every call of the ring, in the order of their issue.
std::vector<std::string> calls_of(const Recorder& recorder) {
  constexpr const char* kStates[] = {"issued", "started", "done", "failed"};
  const Ring ring = recorder.snapshot();
  std::vector<std::string> calls;
  for (const Record& record : ring.records) {
    const RecordedGroup& group = ring.groups.at(record.group);
    calls.push_back(concat(group.name, " of ", group.world_ranks.size(), " #", record.sequence, " ",
                           to_string(record), record.is_background ? " behind " : " ",
                           kStates[static_cast<int>(record.state)]));
  }
  return calls;
}

// Records calls of `group` while `function` runs.
std::shared_ptr<Recorder> recorder_of(Communicator& group, const std::function<void()>& function) {
  const auto recorder =
      std::make_shared<Recorder>(RecorderOptions{.rank = group.rank(), .world_size = group.size()});
  auto& recorded = dynamic_cast<RecordedCommunicator&>(group);
  recorded.record_in(GroupRecorder(recorder, "hull", group.size()));
  function();
  recorded.record_in({});
  return recorder;
}

// To the next rank and from the one before; each message of the group comes once.
void send_around(Communicator& group) {
  const int next = (group.rank() + 1) % group.size();
  const int last = (group.rank() + group.size() - 1) % group.size();
  at::Tensor in = at::empty({2});
  const WorkPtr sent = group.send(at::ones({2}), next, {.tag = 7, .background = true});
  group.recv(in, last, {.tag = 7})->wait();
  sent->wait();
  const WorkPtr lent = group.send(at::ones({2, 3}), next, {.tag = 8, .background = true});
  {
    const LoanPtr loan = group.borrow({2, 3}, at::kFloat, last, {.tag = 8, .background = true});
    loan->wait();
  }
  lent->wait();
}

}  // namespace

void check_recording(Communicator& group) {
  const int p = group.size();
  const auto recorder = recorder_of(group, [&] {
    const at::Tensor data = at::ones({4, 2});
    const std::vector<at::Tensor> blocks(p, at::ones({3}));
    std::vector<at::Tensor> rooms;
    for (const at::Tensor& block : blocks) rooms.push_back(at::empty_like(block));
    const bool is_root = group.rank() == 0;
    group.all_reduce(data)->wait();
    group.reduce(data, 0, {.operation = ReduceOp::kMax})->wait();
    group.broadcast(data, 0)->wait();
    group.all_gather(rooms, blocks[0])->wait();
    group.reduce_scatter(at::empty({3}), blocks)->wait();
    group.all_to_all(rooms, blocks)->wait();
    group.gather(is_root ? rooms : std::vector<at::Tensor>{}, blocks[0], 0)->wait();
    group.scatter(at::empty({3}), is_root ? blocks : std::vector<at::Tensor>{}, 0)->wait();
    group.barrier()->wait();
    const WorkPtr first = group.all_reduce(data, {.background = true});
    const WorkPtr second = group.barrier({.background = true});
    first->wait();
    second->wait();
    all_reduce_coalesced(group, {at::ones({2}), at::ones({5})})->wait();
    if (p > 1) send_around(group);
    const auto half = group.split(2 * group.rank() / p, 0, "half");
    half->all_reduce(data)->wait();
    const auto turned = group.split(0, -group.rank(), "turned");
    turned->barrier()->wait();
    turned->split(turned->rank(), 0, "alone")->broadcast(data, 0)->wait();
    EXPECT_EQ(group.split(-1, 0, "none"), nullptr);
  });
  const int in_half = 2 * group.rank() / p == 0 ? (p + 1) / 2 : p / 2;
  const std::string hull = concat("hull of ", p, " #");
  const std::string turned = concat("turned of ", p, " #");
  const std::string half = concat("half of ", in_half, " #");
  const std::string rows = concat(", ", 3 * p, " elements");
  const std::string all = p == 1 ? "" : rows;
  const int next = (group.rank() + 1) % p;
  const int last = (group.rank() + p - 1) % p;
  std::vector<std::string> expected = {hull + "1 all_reduce(Float [4, 2], sum) done",
                                       hull + "2 reduce(Float [4, 2], max, root 0) done",
                                       hull + "3 broadcast(Float [4, 2], root 0) done",
                                       hull + "4 all_gather(Float [3]" + all + ") done",
                                       hull + "5 reduce_scatter(Float [3]" + all + ", sum) done",
                                       hull + "6 all_to_all(Float [3]) done",
                                       hull + "7 gather(Float [3], root 0) done",
                                       hull + "8 scatter(Float [3], root 0) done",
                                       hull + "9 barrier() done",
                                       hull + "10 all_reduce(Float [4, 2], sum) behind done",
                                       hull + "11 barrier() behind done",
                                       hull + "12 all_reduce(Float [7], sum) done"};
  if (p > 1) {
    for (const std::string& call :
         {concat("1 send(Float [2], peer ", next, ", tag 7) behind done"),
          concat("2 recv(Float [2], peer ", last, ", tag 7) done"),
          concat("3 send(Float [2, 3], peer ", next, ", tag 8) behind done"),
          concat("4 recv(Float [2, 3], peer ", last, ", tag 8) behind done")}) {
      expected.push_back(hull + call);
    }
  }
  const std::string pairs = concat("Long [2]", p == 1 ? "" : concat(", ", 2 * p, " elements"));
  for (const std::string& call :
       {hull + "13 all_gather(" + pairs + ") done", half + "1 join() done",
        half + "2 all_reduce(Float [4, 2], sum) done", hull + "14 all_gather(" + pairs + ") done",
        turned + "1 join() done", turned + "2 barrier() done",
        turned + "3 all_gather(" + pairs + ") done", std::string("alone of 1 #1 join() done"),
        std::string("alone of 1 #2 broadcast(Float [4, 2], root 0) done"),
        hull + "15 all_gather(" + pairs + ") done"}) {
    expected.push_back(call);
  }
  EXPECT_EQ(calls_of(*recorder), expected) << "rank " << group.rank();
}

void check_recorded_failures(Communicator& group) {
  const auto recorder = recorder_of(group, [&] {
    const auto part = group.split(0, group.rank(), "part");
    group.barrier()->wait();
    part->abort("enough");
    const at::Tensor data = at::ones({2});
    EXPECT_THROW(part->all_reduce(data)->wait(), CommError);
    const auto call_behind = [&] { part->barrier({.background = true})->wait(); };
    EXPECT_THROW(call_behind(), CommError);
    if (group.size() == 1) return;
    const int next = (group.rank() + 1) % group.size();
    EXPECT_THROW(part->send(data, next)->wait(), CommError);
    const auto receive_behind = [&] {
      part->recv(data, next, {.tag = 1, .background = true})->wait();
    };
    EXPECT_THROW(receive_behind(), CommError);
  });
  std::vector<std::string> failed;
  for (const std::string& call : calls_of(*recorder)) {
    EXPECT_FALSE(call.ends_with("issued") || call.ends_with("started")) << call;
    if (call.ends_with("failed")) failed.push_back(call);
  }
  const int next = (group.rank() + 1) % group.size();
  const std::string part = concat("part of ", group.size(), " #");
  std::vector<std::string> expected = {part + "2 all_reduce(Float [2], sum) failed",
                                       part + "3 barrier() behind failed"};
  if (group.size() > 1) {
    expected.push_back(part + concat("1 send(Float [2], peer ", next, ", tag 0) failed"));
    expected.push_back(part + concat("2 recv(Float [2], peer ", next, ", tag 1) behind failed"));
  }
  EXPECT_EQ(failed, expected) << "rank " << group.rank();
}

}  // namespace trireme::comm
