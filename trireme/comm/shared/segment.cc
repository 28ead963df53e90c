#include "trireme/comm/shared/segment.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::comm {

// A file is complete before it has a name: it is made without one, reserved, locked, and then
// linked. So nobody opens it half made, and no sweep takes it away. It loses the name as soon as
// all have joined, so a crash leaves nothing behind. A rank is alive as long as the kernel has a
// lock on its byte, however its process ends. The lock is on an open file of its own (LifeLine),
// because forked children share the one that is mapped. Everybody may write to /dev/shm, so a file
// is used only if this user alone can have written it.

namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr const char* kIsTooSmall = " is too small";
constexpr const char* kPrefix = "trireme-";

// The first page of a file in /dev/shm.
struct FileHeader {
  uint64_t magic;
  uint64_t committed;
  uint64_t reserved;
};
constexpr uint64_t kMagic = 0x32656d6572697274;  // "trireme2"
constexpr size_t kHeaderBytes = 4096;

class ThreadSegment : public Segment {
 public:
  // Not reserved: the most of a heap is never used.
  explicit ThreadSegment(SegmentSize size)
      : size_(size),
        data_(static_cast<std::byte*>(mmap(nullptr, size.total(), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    TRIREME_CHECK(data_ != MAP_FAILED, "not enough address space for a group's ", size.total(),
                  " bytes; lower parallel.heap_bytes, or raise the limit (ulimit -v)");
  }
  ~ThreadSegment() override { munmap(data_, size_.total()); }
  std::byte* data() const override { return data_; }
  bool is_alive(int) const override { return true; }  // a thread does not die without its process
  void commit(size_t, size_t) override {}
  void seal() override {}
  SegmentSize size() const { return size_; }

 private:
  SegmentSize size_;
  std::byte* data_;
};

class ThreadSegments : public SegmentFactory {
 public:
  std::shared_ptr<Segment> create(const std::string& name, int, SegmentSize size) override {
    const std::lock_guard lock(mutex_);
    auto& entry = segments_[name];
    TRIREME_CHECK(entry.expired(), "group name \"", name, "\" is in use; choose another");
    const auto segment = std::make_shared<ThreadSegment>(size);
    entry = segment;
    return segment;
  }
  std::shared_ptr<Segment> open(const std::string& name, int, SegmentSize size) override {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(name);
    auto segment = found == segments_.end() ? nullptr : found->second.lock();
    TRIREME_CHECK(segment == nullptr || segment->size() == size, "group \"", name, "\" has ",
                  segment ? segment->size().total() : 0, " bytes, expected ", size.total(),
                  "; give every rank the same options");
    return segment;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<ThreadSegment>> segments_;
};

std::string path_of(const std::string& name) { return concat(kFolder, "/", kPrefix, name); }

struct flock lock_of(short type, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

// Commits memory now, so that a full /dev/shm is an error here, not a SIGBUS later.
void reserve(int fd, size_t offset, size_t num_bytes) {
  const int code = reserve_space(fd, static_cast<int64_t>(offset), static_cast<int64_t>(num_bytes));
  if (code == 0) return;
  struct statvfs status {};
  statvfs(kFolder, &status);
  TRIREME_CHECK(code != ENOSPC && code != ENOMEM, kFolder, kIsTooSmall, ": this group needs ",
                num_bytes, " bytes more and ", status.f_bavail * status.f_frsize, " of ",
                status.f_blocks * status.f_frsize, " are free; mount -o remount,size=... ", kFolder,
                ", or docker run --shm-size=...");
  throw ConfigError(
      concat("cannot reserve ", num_bytes, " bytes in ", kFolder, ": ", std::strerror(code)));
}

// Opens `file` again, for locks that show that this process is alive. A lock belongs to an open
// file description, which mappings and forked children keep alive. Nothing is therefore mapped
// through this one, and a child closes it first. Otherwise a DataLoader's worker would hide that
// its parent was killed.
class LifeLine {
 public:
  explicit LifeLine(const Descriptor& file) {
    // A child that is forked between the opening and the registration would keep the lock.
    const std::lock_guard no_fork(of_process().mutex);
    const std::string self = concat("/proc/self/fd/", file.get());
    file_ = Descriptor(::open(self.c_str(), O_RDWR | O_CLOEXEC));
    TRIREME_CHECK(file_.is_open(), "cannot open shared memory again as ", self, ": ",
                  std::strerror(errno));
    of_process().lines.insert(this);
  }
  LifeLine(const LifeLine&) = delete;
  LifeLine& operator=(const LifeLine&) = delete;
  ~LifeLine() {
    const std::lock_guard no_fork(of_process().mutex);
    of_process().lines.erase(this);
    file_.close();
  }
  int get() const { return file_.get(); }

 private:
  struct All {
    All() {
      pthread_atfork([] { of_process().mutex.lock(); }, [] { of_process().mutex.unlock(); },
                     [] {
                       for (LifeLine* line : of_process().lines) line->file_.close();
                       of_process().mutex.unlock();
                     });
    }
    std::mutex mutex;  // held while a thread forks
    std::set<LifeLine*> lines;
  };
  static All& of_process() {          // one per process, like fork()
    static All* const all = new All;  // segments may outlive static objects
    return *all;
  }

  Descriptor file_;
};

class ShmSegment : public Segment {
 public:
  // Takes over `file` and locks this rank's byte.
  ShmSegment(Descriptor file, std::string path, int rank, SegmentSize size)
      : file_(std::move(file)), life_(file_), path_(std::move(path)), size_(size) {
    // A POSIX lock would go when any descriptor of the file is closed, and this process has two.
    struct flock lock = lock_of(F_WRLCK, rank, 1);
    const bool locked = fcntl(life_.get(), F_OFD_SETLK, &lock) == 0;
    void* base = locked ? mmap(nullptr, kHeaderBytes + size.total(), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, file_.get(), 0)
                        : MAP_FAILED;
    if (base == MAP_FAILED) {
      const int code = errno;
      const std::string reason =
          !locked          ? "another process is that rank"
          : code != ENOMEM ? std::strerror(code)
                           : concat("no room for ", size.total(),
                                    " bytes of address space; lower parallel.heap_bytes, or raise "
                                    "the limit (ulimit -v)");
      throw ConfigError(concat("cannot join ", path_, " as rank ", rank, ": ", reason));
    }
    base_ = static_cast<std::byte*>(base);
    // Uses huge pages if the host has them; ordinary ones work too.
    madvise(data() + size.committed, size.reserved, MADV_HUGEPAGE);
  }
  ~ShmSegment() override {
    if (named_) seal();  // the group was never complete
    munmap(base_, kHeaderBytes + size_.total());
  }
  std::byte* data() const override { return base_ + kHeaderBytes; }
  bool is_alive(int rank) const override {
    struct flock lock = lock_of(F_WRLCK, rank, 1);
    // In doubt it is alive, and the timeout ends the wait.
    return fcntl(life_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }
  void commit(size_t offset, size_t num_bytes) override {
    reserve(file_.get(), kHeaderBytes + offset, num_bytes);
  }
  void seal() override {
    unlink(path_.c_str());
    named_ = false;
  }
  // Gives the file its name. The destructor removes it unless it is sealed before.
  void publish() {
    // Before the file has its name: whoever opens it reads this.
    *reinterpret_cast<FileHeader*>(base_) = {kMagic, size_.committed, size_.reserved};
    const std::string self = concat("/proc/self/fd/", file_.get());
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      const int code = errno;
      throw ConfigError(concat("shared-memory name ", path_,
                               code == EEXIST
                                   ? " is in use by another job; choose another TRIREME_JOB"
                                   : concat(" cannot be made: ", std::strerror(code))));
    }
    named_ = true;
  }

 private:
  Descriptor file_;
  LifeLine life_;
  std::string path_;
  SegmentSize size_;
  std::byte* base_ = nullptr;
  bool named_ = false;
};

bool has_header(int fd, FileHeader* header) {
  return pread(fd, header, sizeof(*header), 0) == sizeof(*header) && header->magic == kMagic;
}

// Why another user may have written the file; "" when none can have.
std::string distrust_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (status.st_uid != geteuid()) {
    return concat("belongs to user ", status.st_uid, ", and this process runs as user ", geteuid());
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) == 0) return "";
  return concat("is open to other users (mode ", std::oct, status.st_mode & 07777,
                ", expected 600)");
}

// Opens a file that no other user can have written. Never opens, or waits for, anything else.
// Negative when there is no such file; `distrust` then says what is there instead, or is empty.
Descriptor open_own(const std::string& path, std::string* distrust) {
  struct stat status {};
  const bool exists = lstat(path.c_str(), &status) == 0;
  if (exists) *distrust = distrust_of(status);
  if (!exists || !distrust->empty()) return Descriptor();
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open()) {
    if (errno != ENOENT) *distrust = concat("cannot be opened: ", std::strerror(errno));
    return file;
  }
  // The file may have been replaced since the first check.
  TRIREME_CHECK(fstat(file.get(), &status) == 0, "cannot read ", path, ": ", std::strerror(errno));
  *distrust = distrust_of(status);
  return distrust->empty() ? std::move(file) : Descriptor();
}

class ShmSegments : public SegmentFactory {
 public:
  std::shared_ptr<Segment> create(const std::string& name, int rank, SegmentSize size) override {
    // Nameless until it is complete and locked, so that no process sees it incomplete and no sweep
    // removes it.
    Descriptor file(::open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    TRIREME_CHECK(file.is_open(), "cannot make shared memory in ", kFolder, ": ",
                  std::strerror(errno));
    reserve(file.get(), 0, kHeaderBytes + size.committed);
    // The reserved part is only length; it takes no memory before commit().
    TRIREME_CHECK(ftruncate(file.get(), static_cast<off_t>(kHeaderBytes + size.total())) == 0,
                  "cannot make ", size.total(), " bytes of shared memory in ", kFolder, ": ",
                  std::strerror(errno));
    auto segment = std::make_shared<ShmSegment>(std::move(file), path_of(name), rank, size);
    segment->publish();
    return segment;
  }
  std::shared_ptr<Segment> open(const std::string& name, int rank, SegmentSize size) override {
    const std::string path = path_of(name);
    std::string distrust;
    Descriptor file = open_own(path, &distrust);
    TRIREME_CHECK(distrust.empty(), path, " ", distrust,
                  "; run all ranks as one user, or choose another TRIREME_JOB");
    if (!file.is_open()) return nullptr;
    // The creator is dead: this is left over from an earlier job. Do not lock it before this check,
    // so that rank 0's sweep can still remove it.
    struct flock creator = lock_of(F_WRLCK, 0, 1);
    if (fcntl(file.get(), F_OFD_GETLK, &creator) == 0 && creator.l_type == F_UNLCK) return nullptr;
    FileHeader header{};
    TRIREME_CHECK(has_header(file.get(), &header), path,
                  " is not shared memory of this version; choose another TRIREME_JOB");
    const SegmentSize found{header.committed, header.reserved};
    TRIREME_CHECK(
        found == size, path, " has ", found.total(), " bytes, expected ", size.total(),
        "; it is not of this job, or the ranks have different options or limits (ulimit)");
    struct stat status {};
    TRIREME_CHECK(fstat(file.get(), &status) == 0 &&
                      static_cast<size_t>(status.st_size) == kHeaderBytes + size.total(),
                  path, " is damaged: it has ", status.st_size, " bytes, expected ",
                  kHeaderBytes + size.total());
    return std::make_shared<ShmSegment>(std::move(file), path, rank, size);
  }
};

}  // namespace

std::shared_ptr<SegmentFactory> make_thread_segments() {
  return std::make_shared<ThreadSegments>();
}

std::shared_ptr<SegmentFactory> make_shm_segments() { return std::make_shared<ShmSegments>(); }

size_t shared_memory_bytes() {
  struct statvfs status {};
  return statvfs(kFolder, &status) == 0 ? status.f_blocks * status.f_frsize : 0;
}

bool is_shared_memory_full(std::string_view message) {
  return message.find(concat(kFolder, kIsTooSmall)) != std::string_view::npos;
}

size_t reservable_bytes() {
  // A process with many groups reserves this much for each of them, out of 47 bits of addresses.
  rlim_t most = rlim_t{2} << 40;
  for (const auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
    rlimit limit{};
    // Half of the limit; the program and its other mappings need the rest.
    if (getrlimit(resource, &limit) == 0) most = std::min(most, limit.rlim_cur / 2);
  }
  return most;
}

int sweep_orphans() {
  int removed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    std::string distrust;
    const Descriptor file = open_own(entry.path(), &distrust);
    FileHeader header{};
    if (!file.is_open() || !has_header(file.get(), &header)) continue;
    struct flock lock = lock_of(F_WRLCK, 0, 0);  // 0: to the end, whatever the size
    const bool orphaned = fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    if (orphaned && unlink(entry.path().c_str()) == 0) ++removed;
  }
  return removed;
}

void Bell::wake_all() {
  // Before the wake-up: who is about to sleep then finds another number and does not.
  rings.fetch_add(1);
  // Not a private futex, as the sleepers are in other processes. All of them, as each waits for
  // something else.
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(uint32_t seen, std::chrono::nanoseconds slice) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(slice);
  const timespec limit{seconds.count(), (slice - seconds).count()};
  // A wake-up, a signal and the end of the slice are all the same: the caller looks again.
  syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace trireme::comm
