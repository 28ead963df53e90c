// A process that this one starts, watches and outlives.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "trireme/base/file/file.h"
#include "trireme/base/machine/group_guard.h"
#include "trireme/base/machine/machine.h"

namespace trireme::launch {

using Environment = std::map<std::string, std::string>;

// The first descriptor of `inherited`, as the child numbers them.
inline constexpr int kFirstInherited = 3;

struct ChildOptions {
  std::vector<std::string> command;  // program and arguments; the program is looked up in PATH
  Environment environment;
  std::vector<int> inherited{};    // become 3, 4, ... in the child
  int input = -1;                  // becomes its stdin; -1: this process's
  int output = -1;                 // the same for stdout
  int errors = -1;                 // the same for stderr
  std::optional<CoreSet> cores{};  // it may run on these; none: on all that this thread may use
  // Kills the child's group when this process is killed. It outlives the child; null: the kernel
  // kills the child, and what it has started lives on.
  GroupGuard* guard = nullptr;
};

struct ExitStatus {
  int code = 0;    // -1 when a signal killed it
  int signal = 0;  // that signal
};

// Not thread safe. The destructor kills the child's process group and collects the child, unless
// that hangs in the kernel for a second.
class Child {
 public:
  // Starts the child in a process group of its own, so that Ctrl-C reaches it once, through this
  // process. When the thread that calls this ends, even by SIGKILL, the kernel kills the child. One
  // that cannot be executed exits with 127, after writing the reason to the first of `inherited`.
  // `name`: for errors, "rank 3".
  // Throws: Error when no process can be made
  Child(const ChildOptions& options, const std::string& name);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Kills its process group: what it has started, and itself.
  void kill_group() const;
  // The exit of the child; nothing while it runs. Reaps it once.
  std::optional<ExitStatus> reap();
  // The same, and kills what is left of its group before another one may get the number.
  std::optional<ExitStatus> reap_group();

 private:
  bool has_ended() const;

  pid_t pid_ = 0;  // 0: collected or moved from
  GroupGuard* guard_ = nullptr;
};

// The variables of this process.
Environment inherited_environment();

// A pipe whose ends children do not inherit by themselves.
struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};
// `flags`: for pipe2, besides O_CLOEXEC.
// Throws: Error when the kernel gives none; `name` as in Child
Pipe make_pipe(const std::string& name, int flags = 0);

}  // namespace trireme::launch
