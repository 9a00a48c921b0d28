#include "fuseblock/reference_blocks.h"

#include <array>

namespace fuseblock {
namespace {

constexpr std::array<ReferenceBlock, 10> kBlocks = {{
    {"conv3d_gn_mean", "conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[128,3,24,32,32]",
     "f32[2,3,6,8,8]"},
    {"conv_transpose3d_relu_gn", "conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)",
     "f32[16,64,32,32,32]", "f32[1,64,4,4,4]"},
    {"conv3d_hardswish_gn_mean", "conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)",
     "f32[1024,3,16,32,32]", "f32[2,3,6,8,8]"},
    {"conv3d_hardswish_gn_mean_k3", "conv3d(16, k=3) | hardswish | group_norm(4) | mean(d,h,w)",
     "f32[1024,3,16,32,32]", "f32[2,3,6,8,8]"},
    {"conv2d_gn_tanh_hardswish_residual_lse",
     "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
     "f32[128,8,128,128]", "f32[2,8,12,12]"},
    {"conv3d_gn_mean_tail", "group_norm(8) | mean(c,d,h,w)", "f32[128,24,22,30,30]", "f32[2,24,4,6,6]"},
    {"conv_transpose3d_relu_gn_tail", "relu | group_norm(8)", "f32[16,128,34,34,34]", "f32[1,128,6,6,6]"},
    {"conv3d_hardswish_gn_mean_tail", "hardswish | group_norm(4) | mean(d,h,w)", "f32[1024,16,13,29,29]",
     "f32[2,16,3,5,5]"},
    {"conv3d_hardswish_gn_mean_k3_tail", "hardswish | group_norm(4) | mean(d,h,w)", "f32[1024,16,14,30,30]",
     "f32[2,16,4,6,6]"},
    {"conv2d_gn_tanh_hardswish_residual_lse_tail",
     "group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", "f32[128,64,126,126]",
     "f32[2,64,10,10]"},
}};

}  // namespace

std::span<const ReferenceBlock> reference_blocks() { return kBlocks; }

const ReferenceBlock* find_reference_block(std::string_view name) {
  for (const ReferenceBlock& block : kBlocks)
    if (block.name == name) return &block;
  return nullptr;
}

}  // namespace fuseblock
