#include "plan/explain_saved.h"

#include <nlohmann/json.hpp>

#include "plan/amounts.h"

namespace fuseblock {

std::string saved_text(const Schedule& schedule) {
  std::string text;
  const std::string head = schedule.reads_saved ? "saved by forward: " : "saved for backward: ";
  for (const SavedValue& value : schedule.saved)
    text += head + value.name + " " + to_string(value.type) + ", " +
            amount(static_cast<double>(value.type.byte_count())) + " bytes, " + value.reason + "\n";
  return text;
}

nlohmann::ordered_json saved_json(const Schedule& schedule) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SavedValue& value : schedule.saved)
    list.push_back({{"name", value.name},
                    {"type", to_string(value.type)},
                    {"bytes", value.type.byte_count()},
                    {"side", schedule.reads_saved ? "read" : "written"},
                    {"reason", value.reason}});
  return list;
}

}  // namespace fuseblock
