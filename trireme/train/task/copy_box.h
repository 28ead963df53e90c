// An owned object that is copied by its clone().
#pragma once

#include <memory>
#include <utility>

namespace trireme::train {

// Copied with what holds it, such as a config. Empty: none.
template <typename T>
class CopyBox {
 public:
  CopyBox() = default;
  CopyBox(std::unique_ptr<T> object) : object_(std::move(object)) {}
  CopyBox(const CopyBox& other) : object_(other.object_ ? other.object_->clone() : nullptr) {}
  CopyBox(CopyBox&&) = default;
  CopyBox& operator=(CopyBox other) {
    object_ = std::move(other.object_);
    return *this;
  }

  explicit operator bool() const { return object_ != nullptr; }
  T& operator*() { return *object_; }
  const T& operator*() const { return *object_; }
  T* operator->() { return object_.get(); }
  const T* operator->() const { return object_.get(); }

 private:
  std::unique_ptr<T> object_;
};

}  // namespace trireme::train
