#include "trireme/launch/inject/command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/descriptor.h"
#include "trireme/base/shown.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 64 << 10;

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

std::string find_program(const std::string& name) {
  for (const char* const folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  throw Error(concat("this machine has no program ", name));
}

// Reads until the other end is closed. Returns whether that happened in time.
bool read_all(int from, Clock::time_point deadline, std::string& output) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd readable{.fd = from, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const auto num_bytes = ::read(from, buffer.data(), buffer.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return true;
    const auto room = kMostOutput - output.size();
    output.append(buffer.data(), std::min(room, static_cast<size_t>(num_bytes)));
  }
}

// Waits for its end, which is near: it was killed, or has closed its output.
ExitStatus await_end(Child& child) {
  while (true) {
    if (const auto status = child.reap_group()) return *status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

std::string run_command(const std::vector<std::string>& arguments,
                        std::chrono::milliseconds limit) {
  std::vector<std::string> command = arguments;
  command.front() = find_program(arguments.at(0));
  Pipe pipe = make_pipe(command.front());
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  // Messages in English, whatever the user's language is.
  Child child({.command = command,
               .environment = {{"LC_ALL", "C"}},
               .input = nothing.get(),
               .output = pipe.write_end.get(),
               .errors = pipe.write_end.get()},
              command.front());
  pipe.write_end.close();
  std::string output;
  const bool has_ended = read_all(pipe.read_end.get(), Clock::now() + limit, output);
  if (!has_ended) child.kill_group();
  const ExitStatus status = await_end(child);
  while (output.ends_with('\n')) output.pop_back();
  if (!has_ended)
    throw Error(concat(joined(arguments), " takes longer than ", limit.count(), " ms"));
  if (status.code != 0) {
    throw Error(
        concat(joined(arguments), ": ",
               output.empty() ? "failed" : shown(output.substr(0, output.find('\n')), 200)));
  }
  return output;
}

}  // namespace trireme::launch::inline internal
