// fuseblock source: the text of every kernel of a plan, as the run-time compiler is given it.
#include <nlohmann/json.hpp>

#include "commands.h"
#include "kernels.h"
#include "table.h"

namespace fuseblock::cli {

int run_source(const SourceOptions& options, const Console& console) {
  const KernelRequest request = read_kernels(options.block, options.gradient);
  const std::vector<KernelText> kernels = request.kernels_for(request.architecture);
  if (console.json()) {
    Json json;
    json["device"] = request.device.name();
    json["architecture"] = request.architecture;
    json["kernels"] = Json::array();
    for (const KernelText& kernel : kernels)
      json["kernels"].push_back({{"name", kernel.name},
                                 {"entry", kernel.entry},
                                 {"options", kernel.options},
                                 {"description", kernel.description},
                                 {"text", kernel.text}});
    console.print_json(json);
    return kSuccess;
  }
  for (const KernelText& kernel : kernels) {
    // The first line is a comment: what is printed compiles as it stands.
    console.print("// " + kernel.name + ": nvrtc --gpu-architecture=" + request.architecture + " " +
                  join(kernel.options, " ") + "\n" + kernel.text);
    if (!kernel.text.ends_with('\n')) console.print("\n");
  }
  return kSuccess;
}

}  // namespace fuseblock::cli
