#include "trireme/train/state/checkpoint_store.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/base/file/digest.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/state/places.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClaim = "claim";
constexpr const char* kRunFiles = "run/";
constexpr const char* kCheckpoints = "checkpoints/";
constexpr uint64_t kMostRunFileBytes = uint64_t{1} << 30;
constexpr uint64_t kPartBytes = 16 << 20;
constexpr size_t kConnections = 4;

// Epoch and step of a checkpoint's name: their order is that of checkpoint::list().
std::pair<int64_t, int64_t> order_of(const std::string& name) {
  return {checkpoint::epoch_of(name), checkpoint::step_of(name)};
}

// Calls use(i) for i from 0 to count - 1, a few at one time. Passes on the first exception.
template <typename Use>
void for_all(size_t count, const Use& use) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        use(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(count, kConnections); ++i) threads.emplace_back(work);
  work();
  for (std::thread& each : threads) each.join();
  if (error) std::rethrow_exception(error);
}

std::string first_word(const std::string& text) {
  return text.substr(0, text.find_first_of(" \n"));
}

std::string amount(uint64_t num_bytes) {
  return format("%.1f MB", static_cast<double>(num_bytes) / 1e6);
}

}  // namespace

// A checkpoint in the store, or what is left of one.
struct CheckpointStore::Stored {
  std::string name;
  std::vector<remote::ListedObject> files{};  // names within it
  bool is_complete() const {
    return std::ranges::count(files, checkpoint::kManifestName, &remote::ListedObject::name) > 0;
  }
};

CheckpointStore::CheckpointStore(CheckpointStoreOptions options, remote::StoreSettings settings)
    : options_(std::move(options)),
      writer_(settings, options_.store),
      reader_(std::move(settings), options_.store) {
  check_run_id();
  const RunMark mark = mark_run(options_.folder);
  const std::string about = concat(mark.id, "\n", mark.folder.string());
  owner_ = to_text(digest_of(std::as_bytes(std::span(about))));
  claim();
  try {
    fetch_newest();
  } catch (...) {
    try {
      writer_.remove(url(kClaim));
    } catch (const Error&) {  // the first error says more
    }
    throw;
  }
  copier_ = std::thread([this] { work(); });
  keeper_ = std::thread([this] { keep_claim(); });
}

CheckpointStore::~CheckpointStore() { stop(/*cuts=*/true); }

void CheckpointStore::stop(bool cuts) {
  if (cuts) writer_.cancel();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (copier_.joinable()) copier_.join();
  if (keeper_.joinable()) keeper_.join();
}

// A folder without checkpoints becomes that of the run in the store. One with checkpoints of
// another run would mix the two.
void CheckpointStore::check_run_id() {
  const auto theirs = writer_.get(url(concat(kRunFiles, kIdFile)));
  if (!theirs) return;
  const fs::path file = options_.folder / kIdFile;
  const std::string id = theirs->text;
  TRIREME_CHECK(checkpoint::is_plain_name(first_word(id)), url(concat(kRunFiles, kIdFile)),
                " is damaged; choose another checkpoint.store");
  if (is_file(file) && read_file(file) == id) return;
  TRIREME_CHECK(
      !checkpoint::latest(options_.folder / "checkpoints"), "checkpoint.store is ", options_.url,
      ", which has the checkpoints of another run than ", options_.folder.string(),
      "; choose another prefix, or an output.folder without checkpoints to go on with those");
  write_file_atomically(file, id);
}

// Owner, number of the renewal, random: no two claims have the same ETag.
std::string CheckpointStore::claim_text() {
  return concat(owner_, " ", num_renewals_++, " ", unique_name(), "\n");
}

void CheckpointStore::claim() {
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto tag = writer_.put_if(url(kClaim), claim_text(), {.is_absent = true});
    if (!tag) {
      const auto found = writer_.get(url(kClaim));
      if (!found) continue;  // its owner has just ended
      TRIREME_CHECK(
          first_word(found->text) == owner_ || found->age_seconds >= options_.lease.count(),
          "checkpoint.store is ", options_.url,
          ", where another run keeps its checkpoints: "
          "it was there ",
          found->age_seconds, " s ago; choose another prefix, or wait ", options_.lease.count(),
          " s if it was killed");
      tag = writer_.put_if(url(kClaim), claim_text(), {.tag = found->tag});
    }
    if (!tag) continue;  // another start was faster
    tag_ = *tag;
    return;
  }
  throw ConfigError(concat("checkpoint.store is ", options_.url,
                           ", which other runs claim at the same time; choose another prefix"));
}

// Throws: ConfigError when another run has it now
void CheckpointStore::renew() {
  const std::lock_guard lock(claim_mutex_);
  const std::string text = claim_text();
  auto tag = writer_.put_if(url(kClaim), text, {.tag = tag_});
  if (!tag) {
    // When an answer is lost on the way, the second try meets what the first one wrote.
    const auto found = writer_.get(url(kClaim));
    if (found && found->text == text) tag = found->tag;
  }
  if (!tag) is_lost_ = true;
  TRIREME_CHECK(tag, "another run has taken checkpoint.store ", options_.url,
                "; this one ends, so that their checkpoints do not mix");
  tag_ = *tag;
}

void CheckpointStore::keep_claim() {
  const auto interval = options_.lease / 4;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return is_ending_; })) {
    lock.unlock();
    try {
      renew();
    } catch (const CommError&) {
      // Nor can another run claim it while the store does not answer.
    } catch (...) {
      const std::lock_guard again(mutex_);
      error_ = std::current_exception();
      if (is_lost_) return;
    }
    lock.lock();
  }
}

std::vector<CheckpointStore::Stored> CheckpointStore::stored() {
  std::map<std::string, Stored> found;
  for (remote::ListedObject& object : writer_.list(url(kCheckpoints))) {
    const size_t slash = object.name.find('/');
    if (slash == std::string::npos) continue;
    const std::string name = object.name.substr(0, slash), file = object.name.substr(slash + 1);
    // Others' objects are left alone.
    if (checkpoint::step_of(name) < 0 || !checkpoint::is_plain_name(file)) continue;
    found[name].files.push_back({file, object.num_bytes});
  }
  std::vector<Stored> all;
  for (auto& [name, checkpoint] : found) {
    checkpoint.name = name;
    all.push_back(std::move(checkpoint));
  }
  std::ranges::sort(all, {}, [](const Stored& each) { return order_of(each.name); });
  return all;
}

// The manifest first: what is left is no checkpoint at any moment.
void CheckpointStore::remove_stored(const Stored& checkpoint) {
  const std::string prefix = concat(kCheckpoints, checkpoint.name, "/");
  if (checkpoint.is_complete()) writer_.remove(url(prefix + checkpoint::kManifestName));
  for_all(checkpoint.files.size(), [&](size_t i) {
    if (checkpoint.files[i].name != checkpoint::kManifestName) {
      writer_.remove(url(prefix + checkpoint.files[i].name));
    }
  });
}

void CheckpointStore::fetch(const std::string& name, const fs::path& to, uint64_t num_bytes) {
  const auto version = reader_.find(url(name));
  TRIREME_CHECK(version && version->num_bytes == num_bytes, url(name),
                " has changed while it was fetched; start again");
  OutputFile file(to);
  std::vector<std::byte> part;
  for (uint64_t at = 0; at < num_bytes; at += part.size()) {
    part.resize(std::min(kPartBytes, num_bytes - at));
    reader_.read(url(name), *version, at, part);
    file.write(part.data(), part.size());
  }
  file.sync();
  file.close();
}

void CheckpointStore::fetch_newest() {
  std::optional<Stored> newest;
  for (Stored& each : stored()) {
    if (each.is_complete()) {
      newest = std::move(each);
    } else {
      remove_stored(each);
    }
  }
  const fs::path root = options_.folder / "checkpoints";
  const auto own = checkpoint::latest(root);
  const auto order_of_own =
      own ? order_of(own->filename().string()) : std::pair<int64_t, int64_t>();
  if (own && (!newest || order_of_own > order_of(newest->name))) next_ = *own;
  if (!newest || (own && order_of_own >= order_of(newest->name))) return;
  const auto start = std::chrono::steady_clock::now();
  for (const remote::ListedObject& file : writer_.list(url(kRunFiles))) {
    const fs::path to = options_.folder / file.name;
    if (!checkpoint::is_plain_name(file.name) || fs::exists(to) ||
        file.num_bytes > kMostRunFileBytes)
      continue;
    fetch(kRunFiles + file.name, to, file.num_bytes);
  }
  // The next save removes folders of such names, if this one is interrupted.
  const fs::path temporary = root / concat(".", newest->name, ".tmp");
  fs::remove_all(temporary);
  make_folders(temporary);
  for_all(newest->files.size(), [&](size_t i) {
    const remote::ListedObject& file = newest->files[i];
    fetch(concat(kCheckpoints, newest->name, "/", file.name), temporary / file.name,
          file.num_bytes);
  });
  sync_folder(temporary);
  fs::rename(temporary, root / newest->name);
  sync_folder(root);
  uint64_t num_bytes = 0;
  for (const remote::ListedObject& file : newest->files) num_bytes += file.num_bytes;
  note(concat("fetched ", url(kCheckpoints + newest->name), ", ", amount(num_bytes), " in ",
              format("%.1f s", seconds_since(start))));
}

void CheckpointStore::note(std::string line) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(std::move(line));
}

void CheckpointStore::copy(const fs::path& checkpoint) {
  {
    const std::lock_guard lock(mutex_);
    next_ = checkpoint;
  }
  changed_.notify_all();
}

void CheckpointStore::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || next_; });
    if (is_ending_) return;
    const fs::path checkpoint = *std::exchange(next_, std::nullopt);
    is_copying_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      put_checkpoint(checkpoint);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_copying_ = false;
    if (error && !error_) error_ = error;
    changed_.notify_all();
  }
}

void CheckpointStore::put_run_files() {
  for (const fs::directory_entry& item : fs::directory_iterator(options_.folder)) {
    const std::string name = item.path().filename().string();
    if (!checkpoint::is_plain_name(name) || !is_file(item.path())) continue;
    const auto file = local_files().open(item.path().string());
    if (file->num_bytes() > kMostRunFileBytes) continue;
    writer_.put(url(kRunFiles + name), *file, kPartBytes);
  }
}

void CheckpointStore::put_checkpoint(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  const std::string prefix = concat(kCheckpoints, name, "/");
  const auto start = std::chrono::steady_clock::now();
  // Opened together: what is open stays readable when a later save removes the folder.
  std::vector<std::pair<std::string, std::unique_ptr<ByteSource>>> files;
  std::unique_ptr<ByteSource> manifest;
  try {
    for (const fs::directory_entry& item : fs::directory_iterator(checkpoint)) {
      auto opened = local_files().open(item.path().string());
      const std::string file = item.path().filename().string();
      if (file == checkpoint::kManifestName) {
        manifest = std::move(opened);
      } else {
        files.emplace_back(file, std::move(opened));
      }
    }
  } catch (const std::exception&) {
    manifest = nullptr;
  }
  if (!manifest)
    return note(concat(checkpoint.string(), " was removed before it was copied to ", options_.url));
  // One of the same step may be there, whose manifest must not meet these files.
  writer_.remove(url(prefix + checkpoint::kManifestName));
  uint64_t num_bytes = 0;
  for (const auto& [file, source] : files) num_bytes += source->num_bytes();
  for_all(files.size(), [&](size_t i) {
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_ || is_lost_) throw Error("the copy was cut");
    }
    writer_.put(url(prefix + files[i].first), *files[i].second, kPartBytes);
  });
  put_run_files();
  renew();  // nothing is committed for a run that has lost its place
  writer_.put(url(prefix + checkpoint::kManifestName), *manifest, kPartBytes);
  note(concat("stored  ", url(kCheckpoints + name), ", ", amount(num_bytes), " in ",
              format("%.1f s", seconds_since(start))));
  remove_old();
}

void CheckpointStore::remove_old() {
  std::vector<Stored> all = stored();
  std::erase_if(all, [](const Stored& each) { return !each.is_complete(); });
  const auto keep = static_cast<size_t>(options_.keep);
  for (size_t i = 0; i + keep < all.size(); ++i) remove_stored(all[i]);
}

std::vector<std::string> CheckpointStore::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

void CheckpointStore::check() {
  const std::lock_guard lock(mutex_);
  if (is_lost_ && error_) std::rethrow_exception(error_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointStore::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (!is_copying_ && !next_) || is_lost_; });
  }
  stop(/*cuts=*/false);
  check();
  const auto found = writer_.get(url(kClaim));
  if (found && found->tag == tag_) writer_.remove(url(kClaim));
}

}  // namespace trireme::train
