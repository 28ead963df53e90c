// A store in memory, at s3://bucket/, that counts what is asked of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

class MemoryStore : public FileStore {
 public:
  struct Object {
    std::string content{};
    std::string version{"\"1\""};
  };

  void put(const std::string& name, std::string content, std::string version = "\"1\"") {
    const std::lock_guard lock(mutex_);
    objects_["s3://bucket/" + name] = {std::move(content), std::move(version)};
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    objects_.erase("s3://bucket/" + name);
  }
  // From this read on, there is no answer. 0: never.
  std::atomic<int> last_read = 0;
  mutable std::atomic<int> num_found = 0, num_reads = 0;
  mutable std::atomic<uint64_t> num_bytes_read = 0;

  std::unique_ptr<ByteSource> find(const std::string& name) const override {
    ++num_found;
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(name);
    return found == objects_.end() ? nullptr : file_of(name, found->second);
  }
  std::unique_ptr<ByteSource> open(const std::string& name) const override {
    std::unique_ptr<ByteSource> file = find(name);
    if (!file) throw ConfigError(concat("there is no ", name));
    return file;
  }
  std::vector<std::unique_ptr<ByteSource>> list(const std::string& prefix) const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<ByteSource>> files;
    for (const auto& [name, object] : objects_)
      if (name.starts_with(prefix)) files.push_back(file_of(name, object));
    return files;
  }

 private:
  class File : public ByteSource {
   public:
    File(const MemoryStore& store, std::string name, const Object& object)
        : store_(store),
          name_(std::move(name)),
          size_(object.content.size()),
          version_(object.version) {}
    std::string name() const override { return name_; }
    uint64_t num_bytes() const override { return size_; }
    std::string version() const override { return version_; }
    void read(uint64_t offset, std::span<std::byte> out) const override {
      store_.read(name_, version_, offset, out);
    }

   private:
    const MemoryStore& store_;
    std::string name_;
    uint64_t size_;
    std::string version_;
  };

  std::unique_ptr<ByteSource> file_of(const std::string& name, const Object& object) const {
    return std::make_unique<File>(*this, name, object);
  }

  void read(const std::string& name, const std::string& version, uint64_t offset,
            std::span<std::byte> out) const {
    const int number = ++num_reads;
    if (last_read > 0 && number > last_read) throw CommError(concat("no answer for ", name));
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) throw ConfigError(concat(name, " is gone"));
    if (found->second.version != version) throw ConfigError(concat(name, " has changed"));
    const std::string& content = found->second.content;
    if (offset > content.size() || out.size() > content.size() - offset)
      throw Error(concat("cannot read ", name, ": it ends early"));
    std::memcpy(out.data(), content.data() + offset, out.size());
    num_bytes_read += out.size();
  }

  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
};

}  // namespace trireme::dataset
