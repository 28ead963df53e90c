#include "trireme/comm/rendezvous/token.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/descriptor.h"

namespace trireme::comm::inline internal {
namespace {

constexpr size_t kMinimumLength = 16;
constexpr size_t kMaximumLength = 4096;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string read_token_file(const std::string& path) {
  // Do not wait for the writer of a FIFO.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  TRIREME_CHECK(file.is_open(), "TRIREME_TOKEN_FILE is \"", path,
                "\", which cannot be read: ", std::strerror(errno), "; ", kTokenAdvice);
  struct stat status {};
  std::array<char, kMaximumLength + 1> text;
  const bool is_file = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t size = is_file ? read(file.get(), text.data(), text.size()) : 0;
  const int code = errno;
  TRIREME_CHECK(is_file, "TRIREME_TOKEN_FILE is \"", path, "\", which is not a file; ",
                kTokenAdvice);
  TRIREME_CHECK(status.st_uid == geteuid(), "TRIREME_TOKEN_FILE is \"", path,
                "\", which belongs to user ", status.st_uid, "; expected this user's, ", geteuid());
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", status.st_mode & 07777);
  TRIREME_CHECK((status.st_mode & 077) == 0, "TRIREME_TOKEN_FILE is \"", path, "\", whose mode ",
                mode, " lets others in; expected 0600: chmod 600 ", path);
  TRIREME_CHECK(size >= 0, "TRIREME_TOKEN_FILE is \"", path,
                "\", which cannot be read: ", std::strerror(code));
  return {text.data(), static_cast<size_t>(size)};
}

}  // namespace

std::string job_token() {
  const char* const given = std::getenv("TRIREME_TOKEN");
  const char* const path = std::getenv("TRIREME_TOKEN_FILE");
  const bool is_given = given != nullptr && *given != '\0';
  if (!is_given && (path == nullptr || *path == '\0')) return "";
  const std::string token = trimmed(is_given ? given : read_token_file(path));
  const std::string where =
      is_given ? "the environment variable TRIREME_TOKEN" : concat("the file ", path);
  TRIREME_CHECK(
      token.size() >= kMinimumLength && token.size() <= kMaximumLength, where, " holds ",
      token.size() > kMaximumLength ? concat("more than ", kMaximumLength) : concat(token.size()),
      " characters; expected a token of ", kMinimumLength, " to ", kMaximumLength, "; ",
      kTokenAdvice);
  return token;
}

}  // namespace trireme::comm::inline internal
