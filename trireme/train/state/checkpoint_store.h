// Keeps a run's checkpoints in an object store too, beside its folder, and begins with those there.
// Only rank 0 has one. Layout and order of the objects: docs/design/checkpoint-format.md, "In an
// object store".
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/remote/store.h"
#include "trireme/remote/store_writer.h"

namespace trireme::train {

struct CheckpointStoreOptions {
  std::string url{};               // s3://BUCKET/PREFIX
  std::filesystem::path folder{};  // the run's
  int64_t keep = 3;                // checkpoints, the newest
  // A run that has not renewed its claim for so long has ended.
  std::chrono::seconds lease = std::chrono::seconds(120);
  remote::StoreOptions store{};
};

// One thread calls it; it has two of its own.
class CheckpointStore {
 public:
  // Claims the prefix for this run, and fetches the newest checkpoint, with the run's other files,
  // if it is newer than those in the folder, which is locked. Then removes what interrupted copies
  // have left in the store.
  // Throws: ConfigError when another run has the prefix or has left its checkpoints there, or the
  //         store refuses; CommError when it does not answer
  CheckpointStore(CheckpointStoreOptions options, remote::StoreSettings settings);
  // Cuts the copy under way.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Begins to copy a checkpoint of the run's folder, in the background; it may be removed there
  // meanwhile. One that waits for an earlier copy gives way to a later one.
  void copy(const std::filesystem::path& checkpoint);

  // For the user, one line each: what was fetched and copied since the last call.
  std::vector<std::string> take_notes();
  // Throws: once, what ended a copy: the store's refusals, CommError; always, ConfigError when
  //         another run has taken the prefix
  void check();
  bool has_lost_claim() const { return is_lost_; }

  // Waits for the copies, and gives the prefix free.
  // Throws: as check()
  void finish();

 private:
  struct Stored;
  std::string url(const std::string& name) const { return options_.url + "/" + name; }
  void check_run_id();
  void claim();
  std::string claim_text();
  void renew();
  void fetch_newest();
  void fetch(const std::string& name, const std::filesystem::path& to, uint64_t num_bytes);
  std::vector<Stored> stored();
  void remove_stored(const Stored& checkpoint);
  void work();
  void keep_claim();
  void put_checkpoint(const std::filesystem::path& checkpoint);
  void put_run_files();
  void remove_old();
  void stop(bool cuts);
  void note(std::string line);

  CheckpointStoreOptions options_;
  remote::StoreWriter writer_;
  remote::Store reader_;
  std::string owner_;

  std::mutex claim_mutex_;  // held during requests
  std::string tag_;         // of the claim
  int64_t num_renewals_ = 0;
  std::atomic<bool> is_lost_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::filesystem::path> next_;  // to copy
  bool is_copying_ = false;
  bool is_ending_ = false;
  std::vector<std::string> notes_;
  std::exception_ptr error_;
  std::thread copier_, keeper_;  // last: they use all of the above
};

}  // namespace trireme::train
