// A step of data-parallel training, 12 layers: make_transformer.py.
module attributes {comm.world = 2 : i64, comm.phase = "decomposed", comm.mesh = [["dp", 2]]} {
  comm.domain @dp groups([[0, 1]])
  func.func @main(%x: tensor<1024x256xf32>, %l0_qkv: tensor<256x768xf32>, %l0_proj: tensor<256x256xf32>, %l0_up: tensor<256x1024xf32>, %l0_down: tensor<1024x256xf32>, %l1_qkv: tensor<256x768xf32>, %l1_proj: tensor<256x256xf32>, %l1_up: tensor<256x1024xf32>, %l1_down: tensor<1024x256xf32>, %l2_qkv: tensor<256x768xf32>, %l2_proj: tensor<256x256xf32>, %l2_up: tensor<256x1024xf32>, %l2_down: tensor<1024x256xf32>, %l3_qkv: tensor<256x768xf32>, %l3_proj: tensor<256x256xf32>, %l3_up: tensor<256x1024xf32>, %l3_down: tensor<1024x256xf32>, %l4_qkv: tensor<256x768xf32>, %l4_proj: tensor<256x256xf32>, %l4_up: tensor<256x1024xf32>, %l4_down: tensor<1024x256xf32>, %l5_qkv: tensor<256x768xf32>, %l5_proj: tensor<256x256xf32>, %l5_up: tensor<256x1024xf32>, %l5_down: tensor<1024x256xf32>, %l6_qkv: tensor<256x768xf32>, %l6_proj: tensor<256x256xf32>, %l6_up: tensor<256x1024xf32>, %l6_down: tensor<1024x256xf32>, %l7_qkv: tensor<256x768xf32>, %l7_proj: tensor<256x256xf32>, %l7_up: tensor<256x1024xf32>, %l7_down: tensor<1024x256xf32>, %l8_qkv: tensor<256x768xf32>, %l8_proj: tensor<256x256xf32>, %l8_up: tensor<256x1024xf32>, %l8_down: tensor<1024x256xf32>, %l9_qkv: tensor<256x768xf32>, %l9_proj: tensor<256x256xf32>, %l9_up: tensor<256x1024xf32>, %l9_down: tensor<1024x256xf32>, %l10_qkv: tensor<256x768xf32>, %l10_proj: tensor<256x256xf32>, %l10_up: tensor<256x1024xf32>, %l10_down: tensor<1024x256xf32>, %l11_qkv: tensor<256x768xf32>, %l11_proj: tensor<256x256xf32>, %l11_up: tensor<256x1024xf32>, %l11_down: tensor<1024x256xf32>) -> (tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>) {
    %l0_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l0_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%x : tensor<1024x256xf32>) outs(%l0_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l0_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l0_norm1, %l0_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l0_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l0_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l0_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l0_qkv_fwd : tensor<1024x768xf32>) outs(%l0_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l0_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l0_attention, %l0_proj, %x : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l0_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l0_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l0_proj_fwd : tensor<1024x256xf32>) outs(%l0_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l0_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l0_norm2, %l0_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l0_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l0_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l0_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l0_up_fwd, %l0_down, %l0_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l1_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l0_down_fwd : tensor<1024x256xf32>) outs(%l1_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l1_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l1_norm1, %l1_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l1_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l1_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l1_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l1_qkv_fwd : tensor<1024x768xf32>) outs(%l1_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l1_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l1_attention, %l1_proj, %l0_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l1_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l1_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l1_proj_fwd : tensor<1024x256xf32>) outs(%l1_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l1_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l1_norm2, %l1_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l1_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l1_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l1_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l1_up_fwd, %l1_down, %l1_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l2_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l1_down_fwd : tensor<1024x256xf32>) outs(%l2_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l2_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l2_norm1, %l2_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l2_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l2_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l2_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l2_qkv_fwd : tensor<1024x768xf32>) outs(%l2_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l2_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l2_attention, %l2_proj, %l1_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l2_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l2_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l2_proj_fwd : tensor<1024x256xf32>) outs(%l2_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l2_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l2_norm2, %l2_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l2_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l2_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l2_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l2_up_fwd, %l2_down, %l2_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l3_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l2_down_fwd : tensor<1024x256xf32>) outs(%l3_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l3_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l3_norm1, %l3_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l3_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l3_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l3_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l3_qkv_fwd : tensor<1024x768xf32>) outs(%l3_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l3_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l3_attention, %l3_proj, %l2_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l3_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l3_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l3_proj_fwd : tensor<1024x256xf32>) outs(%l3_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l3_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l3_norm2, %l3_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l3_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l3_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l3_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l3_up_fwd, %l3_down, %l3_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l4_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l3_down_fwd : tensor<1024x256xf32>) outs(%l4_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l4_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l4_norm1, %l4_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l4_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l4_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l4_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l4_qkv_fwd : tensor<1024x768xf32>) outs(%l4_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l4_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l4_attention, %l4_proj, %l3_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l4_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l4_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l4_proj_fwd : tensor<1024x256xf32>) outs(%l4_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l4_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l4_norm2, %l4_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l4_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l4_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l4_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l4_up_fwd, %l4_down, %l4_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l5_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l4_down_fwd : tensor<1024x256xf32>) outs(%l5_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l5_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l5_norm1, %l5_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l5_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l5_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l5_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l5_qkv_fwd : tensor<1024x768xf32>) outs(%l5_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l5_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l5_attention, %l5_proj, %l4_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l5_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l5_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l5_proj_fwd : tensor<1024x256xf32>) outs(%l5_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l5_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l5_norm2, %l5_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l5_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l5_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l5_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l5_up_fwd, %l5_down, %l5_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l6_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l5_down_fwd : tensor<1024x256xf32>) outs(%l6_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l6_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l6_norm1, %l6_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l6_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l6_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l6_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l6_qkv_fwd : tensor<1024x768xf32>) outs(%l6_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l6_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l6_attention, %l6_proj, %l5_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l6_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l6_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l6_proj_fwd : tensor<1024x256xf32>) outs(%l6_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l6_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l6_norm2, %l6_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l6_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l6_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l6_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l6_up_fwd, %l6_down, %l6_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l7_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l6_down_fwd : tensor<1024x256xf32>) outs(%l7_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l7_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l7_norm1, %l7_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l7_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l7_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l7_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l7_qkv_fwd : tensor<1024x768xf32>) outs(%l7_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l7_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l7_attention, %l7_proj, %l6_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l7_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l7_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l7_proj_fwd : tensor<1024x256xf32>) outs(%l7_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l7_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l7_norm2, %l7_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l7_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l7_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l7_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l7_up_fwd, %l7_down, %l7_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l8_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l7_down_fwd : tensor<1024x256xf32>) outs(%l8_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l8_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l8_norm1, %l8_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l8_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l8_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l8_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l8_qkv_fwd : tensor<1024x768xf32>) outs(%l8_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l8_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l8_attention, %l8_proj, %l7_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l8_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l8_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l8_proj_fwd : tensor<1024x256xf32>) outs(%l8_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l8_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l8_norm2, %l8_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l8_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l8_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l8_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l8_up_fwd, %l8_down, %l8_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l9_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l8_down_fwd : tensor<1024x256xf32>) outs(%l9_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l9_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l9_norm1, %l9_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l9_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l9_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l9_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l9_qkv_fwd : tensor<1024x768xf32>) outs(%l9_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l9_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l9_attention, %l9_proj, %l8_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l9_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l9_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l9_proj_fwd : tensor<1024x256xf32>) outs(%l9_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l9_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l9_norm2, %l9_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l9_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l9_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l9_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l9_up_fwd, %l9_down, %l9_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l10_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l9_down_fwd : tensor<1024x256xf32>) outs(%l10_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l10_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l10_norm1, %l10_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l10_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l10_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l10_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l10_qkv_fwd : tensor<1024x768xf32>) outs(%l10_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l10_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l10_attention, %l10_proj, %l9_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l10_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l10_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l10_proj_fwd : tensor<1024x256xf32>) outs(%l10_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l10_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l10_norm2, %l10_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l10_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l10_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l10_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l10_up_fwd, %l10_down, %l10_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_norm1_out = tensor.empty() : tensor<1024x256xf32>
    %l11_norm1 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l10_down_fwd : tensor<1024x256xf32>) outs(%l11_norm1_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_qkv_fwd_out = tensor.empty() : tensor<1024x768xf32>
    %l11_qkv_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l11_norm1, %l11_qkv : tensor<1024x256xf32>, tensor<256x768xf32>) outs(%l11_qkv_fwd_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l11_attention_out = tensor.empty() : tensor<1024x256xf32>
    %l11_attention = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l11_qkv_fwd : tensor<1024x768xf32>) outs(%l11_attention_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_proj_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l11_proj_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=600000" ins(%l11_attention, %l11_proj, %l10_down_fwd : tensor<1024x256xf32>, tensor<256x256xf32>, tensor<1024x256xf32>) outs(%l11_proj_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_norm2_out = tensor.empty() : tensor<1024x256xf32>
    %l11_norm2 = comm.kernel "busy bytes=1048576 inputs=1 ns=90000" ins(%l11_proj_fwd : tensor<1024x256xf32>) outs(%l11_norm2_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_up_fwd_out = tensor.empty() : tensor<1024x1024xf32>
    %l11_up_fwd = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l11_norm2, %l11_up : tensor<1024x256xf32>, tensor<256x1024xf32>) outs(%l11_up_fwd_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l11_down_fwd_out = tensor.empty() : tensor<1024x256xf32>
    %l11_down_fwd = comm.kernel "busy bytes=1048576 inputs=3 ns=2400000" ins(%l11_up_fwd, %l11_down, %l11_proj_fwd : tensor<1024x1024xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_down_fwd_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %loss_out = tensor.empty() : tensor<1024x256xf32>
    %loss = comm.kernel "busy bytes=1048576 inputs=1 ns=600000" ins(%l11_down_fwd : tensor<1024x256xf32>) outs(%loss_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l11_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%loss, %l11_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l11_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l11_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l11_up_fwd, %loss : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l11_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l11_down_dw_sum = comm.all_reduce @dp sum ins(%l11_down_dw : tensor<1024x256xf32>) outs(%l11_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l11_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l11_down_dx, %l11_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l11_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l11_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l11_norm2, %l11_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l11_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l11_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l11_up_dw_sum = comm.all_reduce @dp sum ins(%l11_up_dw : tensor<256x1024xf32>) outs(%l11_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l11_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l11_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l11_up_dx, %l11_proj_fwd, %loss : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l11_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l11_norm2_dx, %l11_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l11_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l11_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l11_attention, %l11_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l11_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l11_proj_dw_sum = comm.all_reduce @dp sum ins(%l11_proj_dw : tensor<256x256xf32>) outs(%l11_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l11_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l11_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l11_proj_dx, %l11_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l11_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l11_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l11_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l11_attention_dx, %l11_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l11_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l11_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l11_norm1, %l11_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l11_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l11_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l11_qkv_dw_sum = comm.all_reduce @dp sum ins(%l11_qkv_dw : tensor<256x768xf32>) outs(%l11_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l11_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l11_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l11_qkv_dx, %l10_down_fwd, %l11_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l10_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l11_norm1_dx, %l10_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l10_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l10_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l10_up_fwd, %l11_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l10_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l10_down_dw_sum = comm.all_reduce @dp sum ins(%l10_down_dw : tensor<1024x256xf32>) outs(%l10_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l10_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l10_down_dx, %l10_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l10_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l10_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l10_norm2, %l10_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l10_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l10_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l10_up_dw_sum = comm.all_reduce @dp sum ins(%l10_up_dw : tensor<256x1024xf32>) outs(%l10_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l10_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l10_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l10_up_dx, %l10_proj_fwd, %l11_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l10_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l10_norm2_dx, %l10_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l10_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l10_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l10_attention, %l10_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l10_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l10_proj_dw_sum = comm.all_reduce @dp sum ins(%l10_proj_dw : tensor<256x256xf32>) outs(%l10_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l10_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l10_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l10_proj_dx, %l10_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l10_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l10_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l10_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l10_attention_dx, %l10_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l10_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l10_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l10_norm1, %l10_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l10_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l10_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l10_qkv_dw_sum = comm.all_reduce @dp sum ins(%l10_qkv_dw : tensor<256x768xf32>) outs(%l10_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l10_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l10_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l10_qkv_dx, %l9_down_fwd, %l10_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l9_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l10_norm1_dx, %l9_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l9_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l9_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l9_up_fwd, %l10_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l9_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l9_down_dw_sum = comm.all_reduce @dp sum ins(%l9_down_dw : tensor<1024x256xf32>) outs(%l9_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l9_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l9_down_dx, %l9_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l9_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l9_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l9_norm2, %l9_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l9_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l9_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l9_up_dw_sum = comm.all_reduce @dp sum ins(%l9_up_dw : tensor<256x1024xf32>) outs(%l9_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l9_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l9_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l9_up_dx, %l9_proj_fwd, %l10_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l9_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l9_norm2_dx, %l9_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l9_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l9_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l9_attention, %l9_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l9_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l9_proj_dw_sum = comm.all_reduce @dp sum ins(%l9_proj_dw : tensor<256x256xf32>) outs(%l9_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l9_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l9_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l9_proj_dx, %l9_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l9_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l9_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l9_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l9_attention_dx, %l9_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l9_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l9_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l9_norm1, %l9_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l9_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l9_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l9_qkv_dw_sum = comm.all_reduce @dp sum ins(%l9_qkv_dw : tensor<256x768xf32>) outs(%l9_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l9_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l9_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l9_qkv_dx, %l8_down_fwd, %l9_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l8_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l9_norm1_dx, %l8_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l8_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l8_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l8_up_fwd, %l9_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l8_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l8_down_dw_sum = comm.all_reduce @dp sum ins(%l8_down_dw : tensor<1024x256xf32>) outs(%l8_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l8_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l8_down_dx, %l8_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l8_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l8_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l8_norm2, %l8_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l8_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l8_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l8_up_dw_sum = comm.all_reduce @dp sum ins(%l8_up_dw : tensor<256x1024xf32>) outs(%l8_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l8_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l8_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l8_up_dx, %l8_proj_fwd, %l9_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l8_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l8_norm2_dx, %l8_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l8_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l8_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l8_attention, %l8_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l8_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l8_proj_dw_sum = comm.all_reduce @dp sum ins(%l8_proj_dw : tensor<256x256xf32>) outs(%l8_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l8_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l8_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l8_proj_dx, %l8_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l8_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l8_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l8_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l8_attention_dx, %l8_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l8_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l8_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l8_norm1, %l8_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l8_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l8_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l8_qkv_dw_sum = comm.all_reduce @dp sum ins(%l8_qkv_dw : tensor<256x768xf32>) outs(%l8_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l8_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l8_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l8_qkv_dx, %l7_down_fwd, %l8_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l7_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l8_norm1_dx, %l7_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l7_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l7_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l7_up_fwd, %l8_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l7_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l7_down_dw_sum = comm.all_reduce @dp sum ins(%l7_down_dw : tensor<1024x256xf32>) outs(%l7_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l7_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l7_down_dx, %l7_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l7_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l7_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l7_norm2, %l7_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l7_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l7_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l7_up_dw_sum = comm.all_reduce @dp sum ins(%l7_up_dw : tensor<256x1024xf32>) outs(%l7_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l7_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l7_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l7_up_dx, %l7_proj_fwd, %l8_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l7_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l7_norm2_dx, %l7_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l7_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l7_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l7_attention, %l7_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l7_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l7_proj_dw_sum = comm.all_reduce @dp sum ins(%l7_proj_dw : tensor<256x256xf32>) outs(%l7_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l7_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l7_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l7_proj_dx, %l7_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l7_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l7_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l7_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l7_attention_dx, %l7_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l7_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l7_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l7_norm1, %l7_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l7_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l7_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l7_qkv_dw_sum = comm.all_reduce @dp sum ins(%l7_qkv_dw : tensor<256x768xf32>) outs(%l7_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l7_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l7_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l7_qkv_dx, %l6_down_fwd, %l7_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l6_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l7_norm1_dx, %l6_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l6_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l6_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l6_up_fwd, %l7_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l6_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l6_down_dw_sum = comm.all_reduce @dp sum ins(%l6_down_dw : tensor<1024x256xf32>) outs(%l6_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l6_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l6_down_dx, %l6_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l6_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l6_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l6_norm2, %l6_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l6_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l6_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l6_up_dw_sum = comm.all_reduce @dp sum ins(%l6_up_dw : tensor<256x1024xf32>) outs(%l6_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l6_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l6_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l6_up_dx, %l6_proj_fwd, %l7_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l6_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l6_norm2_dx, %l6_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l6_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l6_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l6_attention, %l6_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l6_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l6_proj_dw_sum = comm.all_reduce @dp sum ins(%l6_proj_dw : tensor<256x256xf32>) outs(%l6_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l6_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l6_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l6_proj_dx, %l6_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l6_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l6_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l6_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l6_attention_dx, %l6_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l6_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l6_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l6_norm1, %l6_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l6_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l6_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l6_qkv_dw_sum = comm.all_reduce @dp sum ins(%l6_qkv_dw : tensor<256x768xf32>) outs(%l6_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l6_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l6_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l6_qkv_dx, %l5_down_fwd, %l6_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l5_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l6_norm1_dx, %l5_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l5_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l5_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l5_up_fwd, %l6_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l5_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l5_down_dw_sum = comm.all_reduce @dp sum ins(%l5_down_dw : tensor<1024x256xf32>) outs(%l5_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l5_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l5_down_dx, %l5_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l5_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l5_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l5_norm2, %l5_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l5_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l5_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l5_up_dw_sum = comm.all_reduce @dp sum ins(%l5_up_dw : tensor<256x1024xf32>) outs(%l5_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l5_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l5_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l5_up_dx, %l5_proj_fwd, %l6_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l5_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l5_norm2_dx, %l5_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l5_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l5_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l5_attention, %l5_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l5_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l5_proj_dw_sum = comm.all_reduce @dp sum ins(%l5_proj_dw : tensor<256x256xf32>) outs(%l5_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l5_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l5_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l5_proj_dx, %l5_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l5_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l5_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l5_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l5_attention_dx, %l5_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l5_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l5_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l5_norm1, %l5_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l5_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l5_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l5_qkv_dw_sum = comm.all_reduce @dp sum ins(%l5_qkv_dw : tensor<256x768xf32>) outs(%l5_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l5_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l5_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l5_qkv_dx, %l4_down_fwd, %l5_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l4_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l5_norm1_dx, %l4_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l4_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l4_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l4_up_fwd, %l5_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l4_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l4_down_dw_sum = comm.all_reduce @dp sum ins(%l4_down_dw : tensor<1024x256xf32>) outs(%l4_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l4_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l4_down_dx, %l4_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l4_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l4_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l4_norm2, %l4_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l4_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l4_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l4_up_dw_sum = comm.all_reduce @dp sum ins(%l4_up_dw : tensor<256x1024xf32>) outs(%l4_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l4_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l4_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l4_up_dx, %l4_proj_fwd, %l5_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l4_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l4_norm2_dx, %l4_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l4_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l4_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l4_attention, %l4_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l4_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l4_proj_dw_sum = comm.all_reduce @dp sum ins(%l4_proj_dw : tensor<256x256xf32>) outs(%l4_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l4_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l4_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l4_proj_dx, %l4_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l4_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l4_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l4_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l4_attention_dx, %l4_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l4_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l4_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l4_norm1, %l4_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l4_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l4_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l4_qkv_dw_sum = comm.all_reduce @dp sum ins(%l4_qkv_dw : tensor<256x768xf32>) outs(%l4_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l4_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l4_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l4_qkv_dx, %l3_down_fwd, %l4_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l3_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l4_norm1_dx, %l3_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l3_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l3_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l3_up_fwd, %l4_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l3_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l3_down_dw_sum = comm.all_reduce @dp sum ins(%l3_down_dw : tensor<1024x256xf32>) outs(%l3_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l3_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l3_down_dx, %l3_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l3_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l3_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l3_norm2, %l3_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l3_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l3_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l3_up_dw_sum = comm.all_reduce @dp sum ins(%l3_up_dw : tensor<256x1024xf32>) outs(%l3_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l3_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l3_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l3_up_dx, %l3_proj_fwd, %l4_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l3_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l3_norm2_dx, %l3_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l3_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l3_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l3_attention, %l3_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l3_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l3_proj_dw_sum = comm.all_reduce @dp sum ins(%l3_proj_dw : tensor<256x256xf32>) outs(%l3_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l3_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l3_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l3_proj_dx, %l3_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l3_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l3_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l3_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l3_attention_dx, %l3_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l3_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l3_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l3_norm1, %l3_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l3_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l3_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l3_qkv_dw_sum = comm.all_reduce @dp sum ins(%l3_qkv_dw : tensor<256x768xf32>) outs(%l3_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l3_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l3_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l3_qkv_dx, %l2_down_fwd, %l3_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l2_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l3_norm1_dx, %l2_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l2_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l2_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l2_up_fwd, %l3_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l2_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l2_down_dw_sum = comm.all_reduce @dp sum ins(%l2_down_dw : tensor<1024x256xf32>) outs(%l2_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l2_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l2_down_dx, %l2_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l2_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l2_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l2_norm2, %l2_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l2_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l2_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l2_up_dw_sum = comm.all_reduce @dp sum ins(%l2_up_dw : tensor<256x1024xf32>) outs(%l2_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l2_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l2_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l2_up_dx, %l2_proj_fwd, %l3_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l2_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l2_norm2_dx, %l2_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l2_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l2_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l2_attention, %l2_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l2_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l2_proj_dw_sum = comm.all_reduce @dp sum ins(%l2_proj_dw : tensor<256x256xf32>) outs(%l2_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l2_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l2_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l2_proj_dx, %l2_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l2_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l2_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l2_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l2_attention_dx, %l2_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l2_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l2_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l2_norm1, %l2_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l2_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l2_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l2_qkv_dw_sum = comm.all_reduce @dp sum ins(%l2_qkv_dw : tensor<256x768xf32>) outs(%l2_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l2_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l2_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l2_qkv_dx, %l1_down_fwd, %l2_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l1_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l2_norm1_dx, %l1_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l1_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l1_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l1_up_fwd, %l2_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l1_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l1_down_dw_sum = comm.all_reduce @dp sum ins(%l1_down_dw : tensor<1024x256xf32>) outs(%l1_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l1_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l1_down_dx, %l1_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l1_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l1_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l1_norm2, %l1_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l1_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l1_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l1_up_dw_sum = comm.all_reduce @dp sum ins(%l1_up_dw : tensor<256x1024xf32>) outs(%l1_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l1_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l1_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l1_up_dx, %l1_proj_fwd, %l2_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l1_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l1_norm2_dx, %l1_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l1_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l1_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l1_attention, %l1_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l1_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l1_proj_dw_sum = comm.all_reduce @dp sum ins(%l1_proj_dw : tensor<256x256xf32>) outs(%l1_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l1_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l1_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l1_proj_dx, %l1_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l1_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l1_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l1_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l1_attention_dx, %l1_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l1_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l1_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l1_norm1, %l1_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l1_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l1_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l1_qkv_dw_sum = comm.all_reduce @dp sum ins(%l1_qkv_dw : tensor<256x768xf32>) outs(%l1_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l1_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l1_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l1_qkv_dx, %l0_down_fwd, %l1_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_down_dx_out = tensor.empty() : tensor<1024x1024xf32>
    %l0_down_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l1_norm1_dx, %l0_down : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_down_dx_out : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %l0_down_dw_out = tensor.empty() : tensor<1024x256xf32>
    %l0_down_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l0_up_fwd, %l1_norm1_dx : tensor<1024x1024xf32>, tensor<1024x256xf32>) outs(%l0_down_dw_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_down_dw_sum_out = tensor.empty() : tensor<1024x256xf32>
    %l0_down_dw_sum = comm.all_reduce @dp sum ins(%l0_down_dw : tensor<1024x256xf32>) outs(%l0_down_dw_sum_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_up_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l0_up_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l0_down_dx, %l0_up : tensor<1024x1024xf32>, tensor<256x1024xf32>) outs(%l0_up_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_up_dw_out = tensor.empty() : tensor<256x1024xf32>
    %l0_up_dw = comm.kernel "busy bytes=1048576 inputs=2 ns=2400000" ins(%l0_norm2, %l0_down_dx : tensor<1024x256xf32>, tensor<1024x1024xf32>) outs(%l0_up_dw_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l0_up_dw_sum_out = tensor.empty() : tensor<256x1024xf32>
    %l0_up_dw_sum = comm.all_reduce @dp sum ins(%l0_up_dw : tensor<256x1024xf32>) outs(%l0_up_dw_sum_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l0_norm2_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l0_norm2_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l0_up_dx, %l0_proj_fwd, %l1_norm1_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_norm2_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_proj_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l0_proj_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=600000" ins(%l0_norm2_dx, %l0_proj : tensor<1024x256xf32>, tensor<256x256xf32>) outs(%l0_proj_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_proj_dw_out = tensor.empty() : tensor<256x256xf32>
    %l0_proj_dw = comm.kernel "busy bytes=262144 inputs=2 ns=600000" ins(%l0_attention, %l0_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_proj_dw_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l0_proj_dw_sum_out = tensor.empty() : tensor<256x256xf32>
    %l0_proj_dw_sum = comm.all_reduce @dp sum ins(%l0_proj_dw : tensor<256x256xf32>) outs(%l0_proj_dw_sum_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l0_attention_dx_out = tensor.empty() : tensor<1024x768xf32>
    %l0_attention_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1200000" ins(%l0_proj_dx, %l0_qkv_fwd : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l0_attention_dx_out : tensor<1024x768xf32>) -> tensor<1024x768xf32>
    %l0_qkv_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l0_qkv_dx = comm.kernel "busy bytes=1048576 inputs=2 ns=1800000" ins(%l0_attention_dx, %l0_qkv : tensor<1024x768xf32>, tensor<256x768xf32>) outs(%l0_qkv_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_qkv_dw_out = tensor.empty() : tensor<256x768xf32>
    %l0_qkv_dw = comm.kernel "busy bytes=786432 inputs=2 ns=1800000" ins(%l0_norm1, %l0_attention_dx : tensor<1024x256xf32>, tensor<1024x768xf32>) outs(%l0_qkv_dw_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l0_qkv_dw_sum_out = tensor.empty() : tensor<256x768xf32>
    %l0_qkv_dw_sum = comm.all_reduce @dp sum ins(%l0_qkv_dw : tensor<256x768xf32>) outs(%l0_qkv_dw_sum_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l0_norm1_dx_out = tensor.empty() : tensor<1024x256xf32>
    %l0_norm1_dx = comm.kernel "busy bytes=1048576 inputs=3 ns=90000" ins(%l0_qkv_dx, %x, %l0_norm2_dx : tensor<1024x256xf32>, tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_norm1_dx_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l0_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l0_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l0_qkv, %l0_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l0_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l0_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l0_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l0_proj, %l0_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l0_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l0_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l0_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l0_up, %l0_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l0_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l0_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l0_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l0_down, %l0_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l0_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l1_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l1_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l1_qkv, %l1_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l1_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l1_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l1_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l1_proj, %l1_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l1_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l1_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l1_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l1_up, %l1_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l1_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l1_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l1_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l1_down, %l1_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l1_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l2_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l2_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l2_qkv, %l2_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l2_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l2_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l2_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l2_proj, %l2_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l2_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l2_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l2_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l2_up, %l2_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l2_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l2_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l2_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l2_down, %l2_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l2_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l3_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l3_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l3_qkv, %l3_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l3_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l3_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l3_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l3_proj, %l3_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l3_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l3_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l3_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l3_up, %l3_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l3_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l3_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l3_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l3_down, %l3_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l3_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l4_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l4_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l4_qkv, %l4_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l4_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l4_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l4_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l4_proj, %l4_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l4_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l4_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l4_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l4_up, %l4_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l4_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l4_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l4_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l4_down, %l4_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l4_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l5_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l5_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l5_qkv, %l5_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l5_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l5_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l5_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l5_proj, %l5_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l5_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l5_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l5_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l5_up, %l5_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l5_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l5_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l5_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l5_down, %l5_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l5_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l6_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l6_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l6_qkv, %l6_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l6_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l6_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l6_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l6_proj, %l6_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l6_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l6_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l6_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l6_up, %l6_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l6_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l6_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l6_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l6_down, %l6_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l6_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l7_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l7_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l7_qkv, %l7_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l7_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l7_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l7_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l7_proj, %l7_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l7_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l7_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l7_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l7_up, %l7_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l7_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l7_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l7_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l7_down, %l7_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l7_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l8_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l8_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l8_qkv, %l8_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l8_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l8_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l8_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l8_proj, %l8_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l8_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l8_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l8_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l8_up, %l8_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l8_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l8_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l8_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l8_down, %l8_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l8_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l9_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l9_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l9_qkv, %l9_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l9_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l9_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l9_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l9_proj, %l9_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l9_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l9_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l9_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l9_up, %l9_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l9_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l9_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l9_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l9_down, %l9_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l9_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l10_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l10_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l10_qkv, %l10_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l10_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l10_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l10_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l10_proj, %l10_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l10_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l10_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l10_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l10_up, %l10_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l10_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l10_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l10_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l10_down, %l10_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l10_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    %l11_qkv_new_out = tensor.empty() : tensor<256x768xf32>
    %l11_qkv_new = comm.kernel "busy bytes=786432 inputs=2 ns=235930" ins(%l11_qkv, %l11_qkv_dw_sum : tensor<256x768xf32>, tensor<256x768xf32>) outs(%l11_qkv_new_out : tensor<256x768xf32>) -> tensor<256x768xf32>
    %l11_proj_new_out = tensor.empty() : tensor<256x256xf32>
    %l11_proj_new = comm.kernel "busy bytes=262144 inputs=2 ns=78643" ins(%l11_proj, %l11_proj_dw_sum : tensor<256x256xf32>, tensor<256x256xf32>) outs(%l11_proj_new_out : tensor<256x256xf32>) -> tensor<256x256xf32>
    %l11_up_new_out = tensor.empty() : tensor<256x1024xf32>
    %l11_up_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l11_up, %l11_up_dw_sum : tensor<256x1024xf32>, tensor<256x1024xf32>) outs(%l11_up_new_out : tensor<256x1024xf32>) -> tensor<256x1024xf32>
    %l11_down_new_out = tensor.empty() : tensor<1024x256xf32>
    %l11_down_new = comm.kernel "busy bytes=1048576 inputs=2 ns=314573" ins(%l11_down, %l11_down_dw_sum : tensor<1024x256xf32>, tensor<1024x256xf32>) outs(%l11_down_new_out : tensor<1024x256xf32>) -> tensor<1024x256xf32>
    return %l0_qkv_new, %l0_proj_new, %l0_up_new, %l0_down_new, %l1_qkv_new, %l1_proj_new, %l1_up_new, %l1_down_new, %l2_qkv_new, %l2_proj_new, %l2_up_new, %l2_down_new, %l3_qkv_new, %l3_proj_new, %l3_up_new, %l3_down_new, %l4_qkv_new, %l4_proj_new, %l4_up_new, %l4_down_new, %l5_qkv_new, %l5_proj_new, %l5_up_new, %l5_down_new, %l6_qkv_new, %l6_proj_new, %l6_up_new, %l6_down_new, %l7_qkv_new, %l7_proj_new, %l7_up_new, %l7_down_new, %l8_qkv_new, %l8_proj_new, %l8_up_new, %l8_down_new, %l9_qkv_new, %l9_proj_new, %l9_up_new, %l9_down_new, %l10_qkv_new, %l10_proj_new, %l10_up_new, %l10_down_new, %l11_qkv_new, %l11_proj_new, %l11_up_new, %l11_down_new : tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x768xf32>, tensor<256x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>
  }
}
