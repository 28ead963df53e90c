#include "trireme/comm/segment.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr const char* kPrefix = "trireme-";

class ThreadSegment : public Segment {
 public:
  explicit ThreadSegment(size_t num_bytes)
      : num_bytes_(num_bytes),
        data_(static_cast<std::byte*>(
            mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    TRIREME_CHECK(data_ != MAP_FAILED, "not enough memory for a group's ", num_bytes, " bytes");
  }
  ~ThreadSegment() override { munmap(data_, num_bytes_); }
  std::byte* data() const override { return data_; }
  bool is_alive(int) const override { return true; }  // a thread does not die alone
  void seal() override {}
  size_t num_bytes() const { return num_bytes_; }

 private:
  size_t num_bytes_;
  std::byte* data_;
};

class ThreadSegments : public SegmentFactory {
 public:
  std::shared_ptr<Segment> create(const std::string& name, int, size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    auto& entry = segments_[name];
    TRIREME_CHECK(entry.expired(), "group name \"", name, "\" is in use; choose another");
    const auto segment = std::make_shared<ThreadSegment>(num_bytes);
    entry = segment;
    return segment;
  }
  std::shared_ptr<Segment> open(const std::string& name, int, size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(name);
    auto segment = found == segments_.end() ? nullptr : found->second.lock();
    TRIREME_CHECK(segment == nullptr || segment->num_bytes() == num_bytes, "group \"", name,
                  "\" has ", segment ? segment->num_bytes() : 0, " bytes, expected ", num_bytes,
                  "; give every rank the same options");
    return segment;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<ThreadSegment>> segments_;
};

std::string path_of(const std::string& name) { return std::string(kFolder) + "/" + kPrefix + name; }

struct flock lock_of(short type, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

class ShmSegment : public Segment {
 public:
  // Takes `fd` over and locks this rank's byte.
  ShmSegment(int fd, std::string path, int rank, size_t num_bytes)
      : fd_(fd), path_(std::move(path)), num_bytes_(num_bytes) {
    struct flock lock = lock_of(F_WRLCK, rank, 1);
    const bool locked = fcntl(fd_, F_OFD_SETLK, &lock) == 0;
    void* base =
        locked ? mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
      close(fd_);
      throw ConfigError(concat("cannot join ", path_, " as rank ", rank, ": ",
                               locked ? std::strerror(errno) : "another process is that rank"));
    }
    data_ = static_cast<std::byte*>(base);
  }
  ~ShmSegment() override {
    if (named_) seal();  // the group never came together
    munmap(data_, num_bytes_);
    close(fd_);
  }
  std::byte* data() const override { return data_; }
  bool is_alive(int rank) const override {
    struct flock lock = lock_of(F_WRLCK, rank, 1);
    return fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }
  void seal() override {
    unlink(path_.c_str());
    named_ = false;
  }
  int descriptor() const { return fd_; }
  // From here on the name goes with this segment, unless it is sealed before.
  void own_name() { named_ = true; }

 private:
  int fd_;
  std::string path_;
  size_t num_bytes_;
  std::byte* data_ = nullptr;
  bool named_ = false;
};

// Commits the memory now: a full /dev/shm is an error here, not a SIGBUS later.
void reserve(int fd, size_t num_bytes) {
  const int code = posix_fallocate(fd, 0, static_cast<off_t>(num_bytes));
  if (code == 0) return;
  struct statvfs status {};
  statvfs(kFolder, &status);
  close(fd);
  TRIREME_CHECK(code != ENOSPC && code != ENOMEM, kFolder, " is too small: this group needs ",
                num_bytes, " bytes and ", status.f_bavail * status.f_frsize,
                " are free; mount -o remount,size=... ", kFolder, ", or docker run --shm-size=...");
  throw ConfigError(
      concat("cannot reserve ", num_bytes, " bytes in ", kFolder, ": ", std::strerror(code)));
}

class ShmSegments : public SegmentFactory {
 public:
  std::shared_ptr<Segment> create(const std::string& name, int rank, size_t num_bytes) override {
    const std::string path = path_of(name);
    // Nameless until it is complete and locked: no other process sees less, and no sweep takes it.
    const int fd = ::open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    TRIREME_CHECK(fd >= 0, "cannot make shared memory in ", kFolder, ": ", std::strerror(errno));
    reserve(fd, num_bytes);
    auto segment = std::make_shared<ShmSegment>(fd, path, rank, num_bytes);
    const std::string self = concat("/proc/self/fd/", segment->descriptor());
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      const int code = errno;
      throw ConfigError(concat("shared-memory name ", path,
                               code == EEXIST
                                   ? " is in use by another job; choose another TRIREME_JOB"
                                   : concat(" cannot be made: ", std::strerror(code))));
    }
    segment->own_name();
    return segment;
  }
  std::shared_ptr<Segment> open(const std::string& name, int rank, size_t num_bytes) override {
    const std::string path = path_of(name);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return nullptr;
    TRIREME_CHECK(fd >= 0, "cannot open ", path, ": ", std::strerror(errno));
    // Its creator is dead: what is left of an earlier job. Not locked before this look, so that
    // rank 0's sweep can still take it away.
    struct flock creator = lock_of(F_WRLCK, 0, 1);
    if (fcntl(fd, F_OFD_GETLK, &creator) == 0 && creator.l_type == F_UNLCK) {
      close(fd);
      return nullptr;
    }
    struct stat status {};
    fstat(fd, &status);
    if (static_cast<size_t>(status.st_size) != num_bytes) {
      close(fd);
      throw ConfigError(concat(path, " has ", status.st_size, " bytes, expected ", num_bytes,
                               "; it is not of this job, or the ranks have different options"));
    }
    return std::make_shared<ShmSegment>(fd, path, rank, num_bytes);
  }
};

}  // namespace

std::shared_ptr<SegmentFactory> make_thread_segments() {
  return std::make_shared<ThreadSegments>();
}

std::shared_ptr<SegmentFactory> make_shm_segments() { return std::make_shared<ShmSegments>(); }

int sweep_orphans() {
  int removed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    struct flock lock = lock_of(F_WRLCK, 0, 0);  // 0: to the end, whatever the size
    const bool orphaned = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    close(fd);
    if (orphaned && unlink(entry.path().c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace trireme::comm
