#include "trireme/train/parallel/remote_teacher.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/parallel/teacher_routes_of.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

const TeacherEdges kEdges = {.inputs = {"tokens", "documents"}, .output = "teacher"};
constexpr int64_t kTokens = 3, kWidth = 4;

int world_of(const TeacherRoutes& routes) { return static_cast<int>(routes.data_ranks.size()); }

dataset::Batch batch_of(int64_t samples, int64_t value, bool has_documents = true) {
  dataset::Batch batch;
  batch.tensors.emplace_back("tokens", at::full({samples, kTokens}, value, at::kLong));
  if (has_documents)
    batch.tensors.emplace_back("documents", at::full({samples, kTokens}, value + 1, at::kLong));
  return batch;
}

// What the teacher of these tests says: 100 tokens + documents, and who says it.
at::Tensor said(const dataset::Batch& batch, int teacher) {
  at::Tensor sum = batch["tokens"] * 100;
  if (batch["documents"].defined()) sum = sum + batch["documents"];
  return (sum * 1000 + teacher).unsqueeze(-1).expand({-1, -1, kWidth}).to(at::kFloat).contiguous();
}

// Runs `student` on the ranks that train beside teachers that answer with said().
void teach(const TeacherRoutes& routes,
           const std::function<void(RemoteTeacher& teacher, int rank)>& student,
           std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  harness::run_ranks(world_of(routes), [&](comm::Communicator& world) {
    const bool is_teacher = world.rank() >= routes.first_teacher;
    const auto copy = world.split(
        is_teacher ? 1 + (world.rank() - routes.first_teacher) / routes.ranks_per_copy : 0, 0,
        "copy");
    const auto messages = world.split(0, 0, "teaching");
    if (is_teacher) {
      TeacherServer server(*messages, routes, *copy, kEdges);
      const int first = world.rank() - copy->rank();
      server.send_head({at::full({5, kWidth}, static_cast<float>(first)), at::arange(5.0)});
      server.serve([&](const dataset::Batch& batch) { return said(batch, first); });
    } else {
      RemoteTeacher teacher(kEdges, at::kFloat, timeout);
      teacher.connect(*messages, routes);
      student(teacher, world.rank());
      teacher.leave();
    }
    world.barrier()->wait();
  });
}

TEST(RemoteTeacher, AnswersEachBatchOnEveryReaderWhateverTheCopies) {
  const std::vector<TeacherRoutes> all{routes_of(1, 1, 1), routes_of(1, 1, 3), routes_of(4, 1, 2),
                                       routes_of(2, 2, 1), routes_of(1, 2, 2, 2)};
  for (const TeacherRoutes& routes : all) {
    SCOPED_TRACE(testing::Message() << world_of(routes) << " ranks");
    teach(routes, [&](RemoteTeacher& teacher, int rank) {
      const int64_t data_rank = routes.data_ranks[static_cast<size_t>(rank)];
      ASSERT_EQ(teacher.head().size(), 2U);
      EXPECT_EQ(teacher.head()[0][0][0].item<float>(), routes.teacher_of(data_rank, 0));
      int64_t number = 0;
      for (int64_t step = 0; step < 3; ++step) {
        std::vector<dataset::Batch> batches;
        for (const int64_t samples : {2, 0, 1}) {
          batches.push_back(batch_of(samples, 10 * data_rank + step, /*has_documents=*/step != 1));
        }
        const std::vector<at::Tensor> found = teacher.outputs(batches);
        ASSERT_EQ(found.size(), batches.size());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(found[i].equal(said(batches[i], routes.teacher_of(data_rank, number++))));
        }
      }
    });
  }
}

TEST(RemoteTeacher, IsAskedOnceAndAheadOfOtherBatches) {
  teach(routes_of(2, 1, 1), [&](RemoteTeacher& teacher, int rank) {
    const std::vector<dataset::Batch> now{batch_of(2, rank)}, next{batch_of(2, 7 + rank)};
    const std::vector<dataset::Batch> evaluated{batch_of(1, 50 + rank)};
    teacher.ask(now);
    teacher.ask(next);
    EXPECT_TRUE(teacher.outputs(now)[0].equal(said(now[0], 2)));
    EXPECT_TRUE(teacher.outputs(evaluated)[0].equal(said(evaluated[0], 2)));
    teacher.ask(next);
    EXPECT_TRUE(teacher.outputs(next)[0].equal(said(next[0], 2)));
    EXPECT_GT(teacher.waited().count(), 0);
    teacher.begin_step();
    EXPECT_EQ(teacher.waited().count(), 0);
    teacher.ask(std::vector<dataset::Batch>{batch_of(2, 9)});  // the run ends before it is read
  });
}

TEST(RemoteTeacher, RanksWithoutTheLastStageReadNothing) {
  TeacherRoutes routes = routes_of(1, 2, 1);
  routes.data_ranks[0] = -1;
  teach(routes, [&](RemoteTeacher& teacher, int rank) {
    EXPECT_EQ(teacher.reads(), rank == 1);
    EXPECT_EQ(teacher.head().empty(), rank == 0);
    EXPECT_EQ(teacher.outputs({batch_of(1, 3)}).size(), rank == 1 ? 1U : 0U);
  });
}

TEST(RemoteTeacher, OneThatFailsEndsAllTeachers) {
  const TeacherRoutes routes = routes_of(1, 1, 2);
  std::vector<std::string> texts(3);
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const auto copy = world.split(world.rank(), 0, "copy");
    const auto messages = world.split(0, 0, "teaching");
    std::string& text = texts[static_cast<size_t>(world.rank())];
    if (world.rank() == 0) {
      RemoteTeacher teacher(kEdges, at::kFloat, std::chrono::minutes(1));
      teacher.connect(*messages, routes);
    } else {
      TeacherServer server(*messages, routes, *copy, kEdges);
      server.send_head({at::ones({5, kWidth})});
      text = harness::message_of<CommError>([&] {
        server.serve([&](const dataset::Batch& batch) { return said(batch, world.rank()); });
      });
    }
    world.barrier()->wait();
  });
  for (const int teacher : {1, 2}) {
    const std::string& text = texts[static_cast<size_t>(teacher)];
    EXPECT_NE(text.find("rank 0 stopped before the run's end"), std::string::npos) << text;
  }
}

TEST(RemoteTeacher, ASilentTeacherIsNamedAfterTheTimeout) {
  const TeacherRoutes routes = routes_of(1, 1, 1);
  std::atomic<bool> is_over = false;
  std::string text;
  EXPECT_THROW(
      harness::run_ranks(
          2,
          [&](comm::Communicator& world) {
            const auto messages = world.split(0, 0, "teaching");
            if (world.rank() == 1) {
              const auto copy = world.split(1, 0, "copy");
              TeacherServer(*messages, routes, *copy, kEdges).send_head({at::ones({5, kWidth})});
              while (!is_over) std::this_thread::yield();
              return;
            }
            const auto copy = world.split(0, 0, "copy");
            RemoteTeacher teacher(kEdges, at::kFloat, std::chrono::seconds(1));
            teacher.connect(*messages, routes);
            text = harness::message_of<CommError>([&] { teacher.outputs({batch_of(1, 1)}); });
            is_over = true;
            throw CommError(text);
          }),
      CommError);
  EXPECT_NE(text.find("rank 1, a teacher, has not answered for 1 s"), std::string::npos) << text;
}

// A header of 51 numbers that a student never sends.
TEST(TeacherServer, ARequestThatIsNoneIsOneLine) {
  const auto refusal = [](const std::function<void(int64_t * header)>& damage) {
    const TeacherRoutes routes = routes_of(1, 1, 1);
    std::string text;
    EXPECT_THROW(harness::run_ranks(2,
                                    [&](comm::Communicator& world) {
                                      const auto copy = world.split(world.rank(), 0, "copy");
                                      const auto messages = world.split(0, 0, "teaching");
                                      if (world.rank() == 0) {
                                        const at::Tensor header = at::full({51}, -1, at::kLong);
                                        auto* const numbers = header.mutable_data_ptr<int64_t>();
                                        numbers[0] = numbers[1] = 0;
                                        numbers[2] = 2;
                                        damage(numbers);
                                        messages->send(header, 1, {.tag = 1})->wait();
                                        world.barrier()->wait();
                                        return;
                                      }
                                      TeacherServer server(*messages, routes, *copy, kEdges);
                                      text = harness::message_of<CommError>([&] {
                                        server.serve([](const dataset::Batch& batch) {
                                          return said(batch, 1);
                                        });
                                      });
                                      throw CommError(text);
                                    }),
                 CommError);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  const auto expect = [&](const std::string& part, const std::function<void(int64_t*)>& damage) {
    const std::string text = refusal(damage);
    EXPECT_NE(text.find("rank 0 sent a message about a teacher that has " + part),
              std::string::npos)
        << text;
  };
  expect("the kind 9", [](int64_t* header) { header[0] = 9; });
  expect("the samples of data rank 4", [](int64_t* header) { header[1] = 4; });
  expect("7 tensors", [](int64_t* header) { header[2] = 7; });
  expect("1 tensors", [](int64_t* header) { header[2] = 1; });
  expect("a tensor of dtype 77", [](int64_t* header) { header[3] = 77; });
  expect("9 dimensions", [](int64_t* header) { header[3] = 4, header[4] = 9; });
  expect("a dimension of -2",
         [](int64_t* header) { header[3] = 4, header[4] = 1, header[5] = -2; });
  expect("a dimension of 1099511627776", [](int64_t* header) {
    header[3] = 4, header[4] = 2, header[5] = 2, header[6] = int64_t{1} << 40;
  });
}

}  // namespace
}  // namespace trireme::train
