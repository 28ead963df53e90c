// Lets another thread end all that a rank does with its peers: the groups it has, those it is about
// to make, and the store where it meets the others. For a rank that has to leave a job and to go on
// in the same process.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::comm {

// Thread safe. Once cancelled, it stays so.
class Cancellation {
 public:
  using Abort = std::function<void(const std::string& reason)>;

  // Aborts everything that watches, now and from now on, with `reason`, which is not empty. The
  // first reason stays. What is made with this object then throws CommError soon.
  void cancel(const std::string& reason);
  // "": not cancelled.
  std::string reason() const;
  // Throws: CommError with the reason when cancelled; `doing` begins the text
  void check(const std::string& doing) const;

  // An operation that cancel() aborts. Once the watch is destroyed, `abort` is no longer called,
  // and any call has returned.
  class Watch {
   public:
    Watch() = default;  // watches nothing
    Watch(Watch&& other) noexcept = default;
    Watch& operator=(Watch&& other) noexcept {
      entry_.swap(other.entry_);
      return *this;
    }
    ~Watch();

   private:
    friend class Cancellation;
    struct Entry;
    explicit Watch(std::shared_ptr<Entry> entry);
    std::shared_ptr<Entry> entry_;
  };
  // Calls `abort` when cancelled, in cancel()'s thread; at once when that has happened already.
  // abort: must not throw, and may be called from any thread
  [[nodiscard]] Watch watch(Abort abort);

 private:
  mutable std::mutex mutex_;
  std::string reason_;
  std::vector<std::weak_ptr<Watch::Entry>> entries_;
};

// For options that may have none: a watch on nothing when `cancellation` is null.
[[nodiscard]] Cancellation::Watch watch(const std::shared_ptr<Cancellation>& cancellation,
                                        Cancellation::Abort abort);
// "" when there is none.
std::string reason_of(const std::shared_ptr<Cancellation>& cancellation);

}  // namespace trireme::comm
