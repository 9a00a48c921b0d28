// Numbers as a person reads them.
#pragma once

#include <string>

namespace fuseblock {

// `4.9 G`, `123 k`: two or three digits and the prefix of a thousand.
std::string amount(double value);
// `520 MB`, `4.2 TB/s`, `12 B`.
std::string amount(double value, const std::string& unit);
// `12.3 us`, `4.56 ms`, `1.23 s`.
std::string time_text(double seconds);

}  // namespace fuseblock
