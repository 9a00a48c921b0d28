#include "fuseblock/device_memory.h"

#include <array>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fuseblock/error.h"

namespace fuseblock {
namespace {

TEST(DeviceMemory, GivesBackWhatWasWritten) {
  for (const Device& device : Device::available()) {
    DeviceMemory memory(device, 3);
    memory.write(std::array{std::byte{1}, std::byte{2}, std::byte{3}});
    const DeviceMemory moved = std::move(memory);
    std::array<std::byte, 2> found = {};
    moved.read(found);
    EXPECT_EQ(found, (std::array{std::byte{1}, std::byte{2}})) << device.name();
    synchronize(device);
  }
}

TEST(DeviceMemory, IsTheProgramsOwnWhereTheDeviceHasNone) {
  EXPECT_FALSE(has_own_memory(Device::best()));
  EXPECT_FALSE(has_own_memory(Device::by_name("h200")));
  const DeviceMemory memory(Device::best(), 8);
  memory.bytes()[7] = std::byte{5};
  std::array<std::byte, 8> found = {};
  memory.read(found);
  EXPECT_EQ(found[7], std::byte{5});
}

TEST(DeviceMemory, SaysWhatIsTooMuch) {
#ifndef __SANITIZE_ADDRESS__  // which ends the program instead of returning no memory
  try {
    const DeviceMemory memory(Device::best(), std::size_t{1} << 60);
    FAIL() << "there was so much memory";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cpu: there is not enough memory for 1152921504606846976 bytes"),
              std::string::npos)
        << error.what();
  }
#endif
  DeviceMemory memory(Device::best(), 1);
  EXPECT_THROW(memory.write(std::vector<std::byte>(2)), InternalError);
}

}  // namespace
}  // namespace fuseblock
