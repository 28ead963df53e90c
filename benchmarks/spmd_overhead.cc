// CPU time that a placed tensor adds to an operator, beside plain eager in the same run. One rank,
// tensors so small that the arithmetic is nothing. spmd_overhead.py runs it beside DTensor.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "trireme/comm/shared/thread_group.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/spmd/placed_tensor.h"

namespace {

using namespace trireme;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of several rounds, in microseconds.
double microseconds(const std::function<void()>& call) {
  constexpr int kRounds = 30, kCalls = 2000;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double begin = cpu_seconds();
    for (int i = 0; i < kCalls; ++i) call();
    least = std::min(least, (cpu_seconds() - begin) / kCalls * 1e6);
  }
  return least;
}

void print(const char* name, const std::function<void()>& plain,
           const std::function<void()>& placed) {
  const double eager = microseconds(plain), split = microseconds(placed);
  std::printf("%s %.3f %.3f %.3f\n", name, eager, split, split - eager);
}

void measure(comm::Communicator& world) {
  at::set_num_threads(1);
  const mesh::DeviceMesh mesh(world, {{"tensor", world.size()}});
  const auto grid = std::make_shared<spmd::Grid>(mesh);
  const at::Tensor a = at::ones({4, 4}), b = at::ones({4, 4});
  const auto place = [&](const at::Tensor& t) {
    return spmd::place_whole(grid, t, {spmd::Place::sharded(0)});
  };
  const at::Tensor x = place(a), y = place(b), w = spmd::place_whole(grid, b, {});
  std::printf("operator plain placed added (microseconds of CPU)\n");
  const auto all = [&](const char* mode) {
    std::printf("%s\n", mode);
    print(
        "add", [&] { at::add(a, b); }, [&] { at::add(x, y); });
    print(
        "mm", [&] { at::mm(a, b); }, [&] { at::mm(x, w); });
    print(
        "detach", [&] { a.detach(); }, [&] { x.detach(); });
    print(
        "view",
        [&] {
          a.view({4, 2, 2});
        },
        [&] {
          x.view({4, 2, 2});
        });
    print(
        "gelu", [&] { at::gelu(a); }, [&] { at::gelu(x); });
    print(
        "sum", [&] { a.sum(1); }, [&] { x.sum(1); });
  };
  {
    const c10::NoGradGuard no_gradient;
    all("no_grad");
  }
  a.requires_grad_();
  x.requires_grad_();
  all("graph");
}

}  // namespace

// Two ranks, of which the first measures: the axis is there, and nothing is sent.
int main() {
  trireme::comm::run_thread_group(2, [](trireme::comm::Communicator& world) {
    if (world.rank() == 0) {
      measure(world);
    } else {
      const trireme::mesh::DeviceMesh mesh(world, {{"tensor", world.size()}});
    }
    world.barrier()->wait();
  });
}
