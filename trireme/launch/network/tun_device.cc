#include "trireme/launch/network/tun_device.h"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr const char* kTunFile = "/dev/net/tun";
// Packets that wait for this process to be scheduled. The line's own queue begins behind it.
constexpr int kKernelQueue = 4096;

ifreq request_for(const std::string& name) {
  TRIREME_ASSERT(name.size() < IFNAMSIZ, "a device called ", name);
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

void set_address(sockaddr& target, const std::string& address) {
  sockaddr_in numbers{};
  numbers.sin_family = AF_INET;
  const bool is_address = ::inet_pton(AF_INET, address.c_str(), &numbers.sin_addr) == 1;
  TRIREME_ASSERT(is_address, address, " is no IPv4 address");
  std::memcpy(&target, &numbers, sizeof(numbers));
}

// Changes one property of a device.
class DeviceSettings {
 public:
  explicit DeviceSettings(const std::string& name)
      : name_(name), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    TRIREME_CHECK(socket_.is_open(), "cannot set up the device ", name_, ": ",
                  std::strerror(errno));
  }

  void set(unsigned long what, ifreq request, const char* meaning) const {
    const int result = ::ioctl(socket_.get(), what, &request);
    TRIREME_CHECK(result == 0, "cannot set the ", meaning, " of the device ", name_, ": ",
                  std::strerror(errno), "; expected CAP_NET_ADMIN, which root has");
  }

  void bring_up() const {
    ifreq request = request_for(name_);
    TRIREME_CHECK(::ioctl(socket_.get(), SIOCGIFFLAGS, &request) == 0, "there is no device ", name_,
                  ": ", std::strerror(errno));
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    set(SIOCSIFFLAGS, request, "state");
  }

 private:
  const std::string name_;
  Descriptor socket_;
};

}  // namespace

TunDevice::TunDevice(const std::string& name, const std::string& address, int mtu)
    : device_(::open(kTunFile, O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
  TRIREME_CHECK(device_.is_open(), "cannot open ", kTunFile, ": ", std::strerror(errno),
                "; expected the kernel's module tun (modprobe tun), and in a container the device "
                "(--device ",
                kTunFile, ")");
  ifreq request = request_for(name);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  TRIREME_CHECK(::ioctl(device_.get(), TUNSETIFF, &request) == 0, "cannot make the device ", name,
                ": ", std::strerror(errno), "; expected CAP_NET_ADMIN, which root has");
  const DeviceSettings settings(name);
  request = request_for(name);
  set_address(request.ifr_addr, address);
  settings.set(SIOCSIFADDR, request, "address");
  set_address(request.ifr_netmask, "255.255.255.0");
  settings.set(SIOCSIFNETMASK, request, "network");
  request.ifr_mtu = mtu;
  settings.set(SIOCSIFMTU, request, "largest packet");
  request.ifr_qlen = kKernelQueue;
  settings.set(SIOCSIFTXQLEN, request, "queue");
  settings.bring_up();
}

std::span<const std::byte> TunDevice::read(std::span<std::byte> buffer) const {
  const ssize_t size = ::read(device_.get(), buffer.data(), buffer.size());
  return buffer.first(size > 0 ? static_cast<size_t>(size) : 0);
}

bool TunDevice::write(std::span<const std::byte> packet) const {
  return ::write(device_.get(), packet.data(), packet.size()) ==
         static_cast<ssize_t>(packet.size());
}

void raise_loopback() { DeviceSettings("lo").bring_up(); }

}  // namespace trireme::launch
