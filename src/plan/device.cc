#include "fuseblock/device.h"

#include "plan/device_description.h"
#include "plan/engine.h"

namespace fuseblock {

Device Device::reference() { return by_name("reference"); }

Device Device::best() { return by_name(engines().front().name); }

std::vector<Device> Device::available() {
  static const std::vector<Device> kGpus = [] {
    std::vector<Device> devices;
    for (const Engine& engine : gpu_engines())
      devices.push_back(Device(std::make_shared<const DeviceDescription>(engine.describe()), true));
    return devices;
  }();
  std::vector<Device> devices;
  for (const Engine& engine : engines()) devices.push_back(by_name(engine.name));
  devices.insert(devices.begin() + 1, kGpus.begin(), kGpus.end());
  return devices;
}

std::vector<Device> Device::known() {
  std::vector<Device> devices = available();
  for (const DeviceDescription& gpu : gpu_descriptions())
    devices.push_back(Device(std::make_shared<const DeviceDescription>(gpu), false));
  return devices;
}

Device Device::by_name(std::string_view name) {
  // Made once: a description may be read from a file. What needs no GPU is found without the driver.
  static const std::vector<Device> kHost = [] {
    std::vector<Device> devices;
    for (const Engine& engine : engines())
      devices.push_back(Device(std::make_shared<const DeviceDescription>(engine.describe()), true));
    return devices;
  }();
  for (const Device& device : kHost)
    if (device.name() == name) return device;
  std::string running;
  std::string planned;
  for (const Device& device : known()) {
    if (device.name() == name) return device;
    std::string& list = device.runs() ? running : planned;
    list += (list.empty() ? "" : ", ") + device.name();
  }
  throw UserError("there is no device `" + std::string(name.substr(0, 40)) + "`; there is " + running +
                  ", and to plan for " + planned);
}

void Device::require_runs() const {
  if (runs_) return;
  std::string running;
  for (const Device& device : available()) running += (running.empty() ? "" : ", ") + device.name();
  throw NotSupportedError(name() +
                          ": plans can be made for this device and explained, but nothing here runs them; " +
                          running + " run");
}

}  // namespace fuseblock
