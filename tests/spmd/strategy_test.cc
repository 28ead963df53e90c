#include "trireme/spmd/strategy.h"

#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/mesh/device_mesh.h"

namespace trireme::spmd {
namespace {

// A product [rows, inner] x [inner, columns], or what one change makes of it.
struct Question {
  Form form;
  std::vector<std::vector<int64_t>> sizes{{4, 8}, {8, 6}};
  std::vector<Places> places{2};
  std::vector<double> bytes{256, 384};
  int fixed = -1;
  bool all_fixed = false, has_second = true;

  Question() {
    form.inputs = {{0, 1}, {1, 2}};
    form.outputs = {{0, 2}};
    form.contracted = 1U << 1;
    form.linear = {1, 2};
  }
};

struct Answer {
  bool is_found = false;
  Strategy strategy;

  bool operator==(const Answer& other) const {
    if (is_found != other.is_found || !is_found) return is_found == other.is_found;
    return strategy.inputs == other.strategy.inputs && strategy.outputs == other.strategy.outputs;
  }
};

Answer asked(const Grid& grid, const Question& question) {
  std::vector<Argument> arguments(2);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i == 1 && !question.has_second) continue;
    arguments[i] = {question.sizes[i], &question.places[i], question.bytes[i]};
  }
  Answer answer;
  answer.is_found =
      choose(grid, question.form, arguments, question.fixed, answer.strategy, question.all_fixed);
  return answer;
}

// By a thread that has kept no choice yet.
Answer asked_anew(const Grid& grid, const Question& question) {
  Answer answer;
  std::thread([&] { answer = asked(grid, question); }).join();
  return answer;
}

class Draw {
 public:
  void change(Question& question) {
    const size_t i = up_to(2);
    switch (up_to(13)) {
      case 0: question.sizes[i][up_to(2)] = 2 + 2 * up_to(4); break;
      case 1: question.places[i][0] = place(); break;
      case 2: question.places[i][1] = place(); break;
      case 3: question.bytes[i] = 1 << up_to(12); break;
      case 4: question.fixed = static_cast<int>(up_to(2)) - 1; break;
      case 5: question.all_fixed = !question.all_fixed; break;
      case 6: question.has_second = !question.has_second; break;
      case 7: question.form.contracted ^= 1U << up_to(3); break;
      case 8: question.form.inputs[i][up_to(2)] = static_cast<Factor>(up_to(4)) - 1; break;
      case 9: question.form.sums ^= 1; break;
      case 10: question.form.added ^= 1U << i; break;
      case 11: question.form.granule = 1 + up_to(3), question.form.granular = 0; break;
      default: question.form.linear = {static_cast<TensorSet>(up_to(4))}; break;
    }
  }

 private:
  size_t up_to(size_t count) { return generator_() % count; }
  Place place() {
    if (up_to(4) == 0) return Place::partial();
    if (up_to(3) == 0) return Place::replicated();
    Place place = Place::sharded(static_cast<int>(up_to(2)));
    if (up_to(3) == 0)
      place.cuts = std::make_shared<const std::vector<int64_t>>(
          std::vector<int64_t>{0, static_cast<int64_t>(up_to(3)), 4});
    return place;
  }

  std::mt19937 generator_{45};
};

// Chains of questions that differ in one thing each: a thread that keeps its choices answers as one
// that has none, and so it does the second time.
TEST(Strategy, AKeptChoiceIsThatOfTheSameArguments) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh square(world, {{"data", 2}, {"tensor", 2}}),
        line(world, {{"tensor", 4}});
    const Grid two(square), four(line);
    if (world.rank() == 0) {
      Draw draw;
      int different = 0;
      for (int chain = 0; chain < 60; ++chain) {
        Question question;
        Answer before;
        for (int step = 0; step < 12; ++step, draw.change(question)) {
          const Grid& grid = step == 0 && chain % 2 == 1 ? four : two;
          const Answer answer = asked_anew(grid, question);
          EXPECT_EQ(asked(grid, question), answer) << chain << ", " << step;
          EXPECT_EQ(asked(grid, question), answer) << chain << ", " << step;
          different += answer == before ? 0 : 1;
          before = answer;
        }
      }
      EXPECT_GT(different, 100);
    }
    world.barrier()->wait();
  });
}

}  // namespace
}  // namespace trireme::spmd
