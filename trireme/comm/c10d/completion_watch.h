// Notices when works of a c10d backend are done. On a GPU their wait() orders a stream and returns
// at once, and there is no callback. A thread therefore polls them every few milliseconds, and
// sleeps while there are none.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Work;
}

namespace trireme::comm {

// Thread safe. The watch calls its works' isCompleted() from its own thread.
class CompletionWatch {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // For works on the calling thread's current device of that type.
  explicit CompletionWatch(c10::DeviceType device);
  // Joins the thread. Gives up works that are not done within a moment.
  ~CompletionWatch();
  CompletionWatch(const CompletionWatch&) = delete;
  CompletionWatch& operator=(const CompletionWatch&) = delete;

  // Calls on_end(succeeded) once, on the watch's thread, when all of `works` are done. A work that
  // cannot be polled because its device has failed counts as failed.
  void add(Works works, std::function<void(bool)> on_end);

 private:
  struct Watched {
    Works works;
    std::function<void(bool)> on_end;
  };
  void loop();
  static bool end_if_done(const Watched& watched);

  const c10::Device device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> added_;
  bool stop_ = false;
  std::thread thread_;  // starts with the first works
};

}  // namespace trireme::comm
